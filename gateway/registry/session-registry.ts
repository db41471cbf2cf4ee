import { LatticeError } from '../../shared/lattice/lattice-error.ts';
import { RegistryReplica } from '../../shared/lattice/registry-replica.ts';
import { decodeUpdate, type EntryUpdate, encodeUpdate, type Update } from '../../shared/lattice/registry-update.ts';
import { decodeTicket, type Ticket } from '../../shared/lattice/ticket.ts';
import { LOCAL_ISSUER } from '../../shared/routing/trusted-providers.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';
import type { ObjectContext } from '../platform/object-context.ts';
import { nowS } from '../platform/unix-time.ts';
import { AdmissionQuota, type AdmissionRequest, type QuotaRefusal } from './admission-quota.ts';
import type { Admissions } from './admissions.ts';
import type { IssuerAuthority } from './issuer-authority.ts';
import type { ListedIssuer } from './listed-issuers.ts';
import { RegistryStorage } from './registry-storage.ts';
import { SessionTable, SILENT_REASON } from './session-table.ts';
import type { NodeEventLog } from './views/node-event-log.ts';

/** The answer to an agent that joins. */
export interface AdmittedNode {
  session: string;
  ticket: Uint8Array;
  /** When the ticket expires; seconds since 1970. */
  expires: number;
  issuer: string;
  issuers: ListedIssuer[];
  /** This gateway's id as a gossip peer. */
  gateway: string;
}

export interface NewNode extends AdmissionRequest {
  sessionKey: Uint8Array;
  cluster: string;
  /** End of the agent's job; seconds since 1970. */
  jobEndsAt?: number | undefined;
}

/**
 * Result of a session's record. `over`: the session has ended and its agent needs a new one. `refused`: the record
 * breaks a rule.
 */
export type PublishResult = { kind: 'stored' } | { kind: 'refused'; reason: string } | { kind: 'over'; reason: string };

interface MembershipEvents {
  /** Called with updates that gossip must spread. */
  local(updates: readonly Update[]): void;
  /**
   * Called when a session's tunnel to this gateway opened, or when a suspected session sent something on its tunnel.
   */
  opened(session: string): void;
  /** Called when a session with an open tunnel to this gateway has ended. */
  ended(session: string, reason: string): void;
}

/**
 * The sessions of the registry object: the replica, the shown and stored state of sessions, and the issuer's evictions
 * and watermarks. Each change of any of these is made here, so that they stay consistent.
 */
export class SessionRegistry {
  readonly replica: RegistryReplica;
  readonly sessions: SessionTable;
  readonly #storage: RegistryStorage;
  readonly #authority: IssuerAuthority;
  readonly #admissions: Admissions;
  readonly #quota: AdmissionQuota;
  readonly #events: MembershipEvents;

  /** Reads the stored state. */
  constructor(
    context: Pick<ObjectContext, 'storage' | 'clock'>,
    parts: { authority: IssuerAuthority; admissions: Admissions; history: NodeEventLog },
    events: MembershipEvents,
  ) {
    this.#authority = parts.authority;
    this.#admissions = parts.admissions;
    this.#events = events;
    this.#storage = new RegistryStorage(context, {
      update: (session) => this.#encodedUpdate(session),
      shown: (session) => this.sessions.get(session),
    });
    this.replica = new RegistryReplica({ crypto: workerdCrypto, accepts: (issuer) => this.#authority.accepts(issuer) });
    this.sessions = new SessionTable(crypto.randomUUID(), {
      issuerName: (id) => this.#authority.nameOf(id),
      now: () => Date.now(),
      onShown: (session) => this.#storage.touch(session),
      onNews: (before, now, reason) => parts.history.changed(before, now, reason, Date.now()),
    });
    this.#quota = new AdmissionQuota(this.#admissions, (session) => {
      const shown = this.sessions.get(session);
      return shown !== undefined && shown.state !== 'LEFT' && !shown.suspected;
    });
    this.#load();
  }

  #load(): void {
    for (const update of this.#storage.control()) this.replica.load(update);
    for (const { update, shown } of this.#storage.entries()) {
      const held = update !== undefined && this.replica.load(update).outcome === 'merged';
      if (shown === undefined) continue;
      // The session's issuer may have been removed from the list. Such a session must not be restored: it would be
      // shown, and requests would be routed to it, forever.
      if (held || shown.state === 'LEFT') this.sessions.restore(shown);
      else this.#storage.touch(shown.session);
    }
    for (const revocation of this.#authority.issuer.revocations) this.merge(revocation);
  }

  #encodedUpdate(session: string): Uint8Array | undefined {
    const entry = this.replica.get(session);
    return entry === undefined ? undefined : encodeUpdate(entry.update(true));
  }

  /**
   * Admits a session: returns its ticket with the accepted issuers. Null: our certificate is not valid now, so no
   * gateway would accept the ticket.
   */
  admit(node: NewNode): AdmittedNode | QuotaRefusal | null {
    const { issuer } = this.#authority;
    const { notBefore, notAfter } = issuer.certificate;
    if (nowS() < notBefore || nowS() >= notAfter) return null;
    const refused = this.#quota.refusal(node, Date.now());
    if (refused !== undefined) return refused;
    const bytes = issuer.ticket(node, nowS(), this.#watermark());
    const ticket = decodeTicket(bytes, workerdCrypto);
    const { session, expires } = ticket;
    const { tokenId: token, provider } = node;
    this.#admissions.add({ session, token, provider, ticket: bytes, expires }, Date.now());
    return {
      session,
      ticket: bytes,
      expires,
      issuer: ticket.issuer,
      issuers: this.#authority.listed,
      gateway: issuer.id,
    };
  }

  #watermark(): number {
    const { certificate, issuer } = this.#authority.issuer;
    const own = this.replica
      .watermarks(issuer)
      .find((watermark) => watermark.certificate.keyName === certificate.keyName);
    return own?.at ?? 0;
  }

  /**
   * Ends all sessions that a revoked join token admitted, including those that have sent no record yet. `frees`: their
   * tickets no longer count for the provider. If the provider itself revokes the token, `frees` must be false:
   * otherwise the provider could fill the registry with ended sessions, token by token.
   */
  revokeToken(token: string, frees: boolean): number {
    const admitted = this.#admissions.of(token);
    for (const { session, ticket } of admitted) {
      this.#evict(decodeTicket(ticket, workerdCrypto), 'token-revoked');
      if (frees) this.#admissions.forget(session);
    }
    return admitted.length;
  }

  /** Returns for each join token how many nodes count against its limit now. */
  places(tokens: readonly string[]): number[] {
    return tokens.map((token) => this.#quota.places({ token }, 0, Date.now()));
  }

  /** Evicts a session for the operator. False: this gateway does not know the session, or did not admit it. */
  evict(session: string): boolean {
    const entry = this.replica.get(session);
    return entry !== undefined && this.#evict(entry.ticket, 'operator');
  }

  /** False if another gateway admitted the session, because only the admitting gateway may evict it. */
  #evict(ticket: Ticket, reason: string): boolean {
    const update = this.#signed(ticket, reason);
    if (update !== undefined) this.#events.local([update]);
    return update !== undefined;
  }

  #signed(ticket: Ticket, reason: string): Update | undefined {
    const eviction = this.#authority.issuer.eviction(ticket, reason);
    if (eviction === undefined) return undefined;
    const update = { ...eviction, ticket: ticket.bytes };
    this.merge(update);
    this.#admissions.ended(ticket.session);
    return update;
  }

  /**
   * Called when a suspected session's grace period is over. Returns the eviction, already merged here, which gossip
   * must spread.
   */
  signEviction(session: string): Update | undefined {
    const ticket = this.replica.get(session)?.ticket;
    return ticket && this.#signed(ticket, SILENT_REASON);
  }

  /** Handles a session's own record. It arrived on the session's tunnel, so the tunnel is open. */
  publish(session: string, ticketBytes: Uint8Array, updateBytes: Uint8Array): PublishResult {
    const read = readUpdate(ticketBytes, updateBytes);
    if (typeof read === 'string') return { kind: 'refused', reason: read };
    const { ticket, update } = read;
    if (!this.#authority.accepts(ticket.issuer)) return { kind: 'over', reason: 'its issuer is not listed here' };
    if (ticket.expires <= nowS()) return { kind: 'over', reason: 'its ticket has expired' };
    if (this.replica.get(session) === undefined && !this.#admissions.speaks(session, Date.now()))
      return { kind: 'over', reason: 'it was admitted too long ago' };
    const result = this.merge(update);
    switch (result.outcome) {
      case 'rejected':
        return { kind: 'refused', reason: result.message };
      case 'deferred':
        return { kind: 'refused', reason: `its ${result.lacks} is missing` };
      case 'collected':
        return { kind: 'over', reason: 'collected' };
      case 'merged':
      case 'known':
      case 'older':
        if (!result.sessions.includes(session)) return { kind: 'refused', reason: "another session's record" };
        return this.#publishNews(session, result.outcome === 'merged' ? [update] : []);
    }
  }

  /**
   * Handles a verified record with the state LEFT. True if the record was new here. Then the session's tunnel object
   * may not know that the session has left.
   */
  left(ticket: Uint8Array, record: Uint8Array): boolean {
    const update: EntryUpdate = { kind: 'entry', ticket, record };
    const news = this.merge(update, true).outcome === 'merged';
    if (news) this.#events.local([update]);
    return news;
  }

  #publishNews(session: string, news: readonly Update[]): PublishResult {
    const entry = this.replica.get(session);
    if (entry?.eviction !== undefined) return { kind: 'over', reason: `evicted: ${entry.eviction.reason}` };
    // If this object was killed, the restored session table still shows tunnels as open. It also shows suspicions, but
    // without their reasons.
    const wasTrusted = this.sessions.isOpen(session) && this.sessions.get(session)?.suspected !== true;
    this.sessions.tunnel(session, 'open', entry);
    this.sessions.suspect(session, 'tunnel', false, entry);
    if (!wasTrusted && entry?.state !== 'LEFT') this.#events.opened(session);
    if (news.length > 0) this.#events.local(news);
    // The output gate holds the response until the rows are on disk. So if an agent receives `stored`, its record is
    // not lost, even if the agent then exits.
    this.#storage.flush();
    return { kind: 'stored' };
  }

  merge(update: Update, wasKilled = false) {
    const result = this.replica.merge(update);
    if (result.outcome === 'merged') this.changed(result.sessions, wasKilled);
    if (result.outcome === 'merged' && update.kind !== 'entry') this.#keepControl(result.issuer);
    return result;
  }

  #keepControl(issuer: string): void {
    for (const { certificate, bytes } of this.replica.watermarks(issuer))
      this.#storage.keepControl(
        `${issuer}/floor/${certificate.keyName}`,
        encodeUpdate({ kind: 'floor', floor: bytes }),
      );
    for (const { keyName, bytes } of this.replica.revocations(issuer))
      this.#storage.keepControl(`${issuer}/key/${keyName}`, encodeUpdate({ kind: 'revocation', revocation: bytes }));
  }

  /** Updates the shown and stored state after entries of the replica have changed. */
  changed(sessions: readonly string[], wasKilled = false): void {
    for (const session of sessions) {
      const entry = this.replica.get(session);
      const wasOpen = this.sessions.isOpen(session);
      this.sessions.update(session, entry, wasKilled);
      this.#storage.touch(session);
      if (entry === undefined || entry.state === 'LEFT') this.#admissions.ended(session);
      const eviction = entry?.eviction;
      if (wasOpen && (entry === undefined || eviction !== undefined))
        this.#events.ended(session, eviction?.reason ?? 'collected');
    }
  }

  /** Signs watermarks and drops expired sessions and admissions. Call this every hour. */
  cleanUp(): void {
    this.#signWatermarks();
    this.sessions.sweep();
    this.#admissions.sweep(nowS());
  }

  /** Signs watermarks, which make every replica drop sessions that ended long enough ago. */
  #signWatermarks(): void {
    const watermarks = this.#authority.issuer.watermarks(nowS());
    for (const watermark of watermarks) this.merge(watermark);
    this.#events.local(watermarks);
  }

  /** Handles a changed list of issuers. @returns the sessions of issuers that were removed from it */
  relist(): string[] {
    const gone = this.replica.setIssuers((issuer) => this.#authority.accepts(issuer));
    for (const session of gone) {
      if (this.sessions.isOpen(session)) this.#events.ended(session, 'issuer-removed');
      this.sessions.remove(session);
      this.#storage.touch(session);
    }
    // A peer institution may have a new name, which is part of its providers' ids.
    for (const { session, issuer } of [...this.replica.entries()])
      if (this.#authority.nameOf(issuer) !== LOCAL_ISSUER) this.sessions.update(session, this.replica.get(session));
    return gone;
  }
}

/** Parses the content of a RECORD frame, or returns why it is invalid. */
function readUpdate(
  ticketBytes: Uint8Array,
  updateBytes: Uint8Array,
): { ticket: Ticket; update: EntryUpdate } | string {
  try {
    const ticket = decodeTicket(ticketBytes, workerdCrypto);
    const update = decodeUpdate(updateBytes);
    const isRecord = update.kind === 'entry' && update.record !== undefined && update.eviction === undefined;
    return isRecord ? { ticket, update: { ...update, ticket: ticketBytes } } : 'not a record';
  } catch (error) {
    if (error instanceof LatticeError) return error.message;
    throw error;
  }
}

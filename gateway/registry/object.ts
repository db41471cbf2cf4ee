import { DurableObject } from 'cloudflare:workers';
import { LatticeError } from '../../shared/lattice/error.ts';
import { Replica } from '../../shared/lattice/replica.ts';
import { decodeTicket, type Ticket } from '../../shared/lattice/ticket.ts';
import { decodeUpdate, encodeUpdate, type Update } from '../../shared/lattice/update.ts';
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import { readSettings } from '../accounts/settings.ts';
import type { Env } from '../env.ts';
import { workerdCrypto } from '../issuer/crypto.ts';
import { Admissions } from './admissions.ts';
import { Archive } from './archive.ts';
import { Authority } from './authority.ts';
import { type ListedIssuer, LOCAL_ISSUER } from './issuers.ts';
import { type LogTail, LogTails } from './log-tails.ts';
import { readPeers } from './peers.ts';
import { Roster } from './roster.ts';
import type { SnapshotDelta } from './snapshot-store.ts';

/** There is one registry object per gateway. */
export const REGISTRY_NAME = 'registry';

/** Floors are signed, and what is too old is dropped, this often: the alarm of an object that sleeps otherwise. */
const HOUSEKEEPING_MS = 60 * 60_000;

/** What an agent that asks to join is given. */
export interface AdmittedNode {
  session: string;
  ticket: Uint8Array;
  /** Seconds since 1970. */
  expires: number;
  issuer: string;
  issuers: ListedIssuer[];
  /** This gateway's name as a gossip peer. */
  gateway: string;
}

export interface NewNode {
  sessionKey: Uint8Array;
  provider: string;
  cluster: string;
  tokenId: string;
  /** Seconds since 1970. */
  jobEndsAt?: number | undefined;
}

/** `over`: the session has ended, its agent needs a new one. `refused`: the word breaks a rule. */
export type Published = { kind: 'stored' } | { kind: 'refused'; reason: string } | { kind: 'over'; reason: string };

/** Why and by whom it has been asked since it woke; tests and operators count with it. */
export interface RegistryCounters {
  sessions: number;
  snapshots: number;
  words: number;
  messages: number;
  /** Where the issuer's key is from. */
  issuer: 'environment' | 'own';
  issuerId: string;
}

/**
 * One replica of the registry: the gateway's peer among those of the agents. Requests never reach it; isolates follow it by
 * differences.
 *
 * Survives eviction: the lattice, how sessions were shown, who was admitted by which token, the issuer's keys where the environment has
 * none; all in SQLite, read at start, written behind.
 */
export class RegistryObject extends DurableObject<Env> {
  readonly #authority: Authority;
  readonly #archive: Archive;
  readonly #admissions: Admissions;
  readonly #logs: LogTails;
  readonly #replica: Replica;
  readonly #roster: Roster;
  #snapshots = 0;
  #words = 0;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    const { storage } = ctx;
    this.#archive = new Archive(storage, {
      words: (session) => this.#wordsOf(session),
      shown: (session) => this.#roster.get(session),
    });
    this.#admissions = new Admissions(storage.sql);
    this.#logs = new LogTails(storage.sql);
    this.#authority = new Authority(env, this.#archive, nowS());
    this.#replica = new Replica({ crypto: workerdCrypto, accepts: (issuer) => this.#authority.accepts(issuer) });
    this.#roster = new Roster(crypto.randomUUID(), {
      issuerName: (id) => this.#authority.nameOf(id),
      now: () => Date.now(),
      onShown: (session) => this.#archive.touch(session),
    });
    this.#load();
    this.#roster.store.set({ issuers: this.#authority.listed, gateway: this.#authority.issuer.id });
    ctx.waitUntil(this.#armAlarm());
  }

  #load(): void {
    for (const words of this.#archive.control()) this.#replica.load(words);
    for (const { words, shown } of this.#archive.entries()) {
      const held = words !== undefined && this.#replica.load(words).outcome === 'merged';
      if (shown === undefined) continue;
      // Its issuer may be ours no longer: such a session would be shown, and routed to, for ever.
      if (held || shown.state === 'LEFT') this.#roster.restore(shown);
      else this.#archive.touch(shown.session);
    }
    for (const revocation of this.#authority.issuer.revocations) this.#merge(revocation);
  }

  #wordsOf(session: string): Uint8Array | undefined {
    const entry = this.#replica.get(session);
    return entry === undefined ? undefined : encodeUpdate(entry.update(true));
  }

  // --- admission ----------------------------------------------------------------------------------------------------

  /** A new session's ticket, and whom to trust beside us. */
  admit(node: NewNode): AdmittedNode {
    const { issuer } = this.#authority;
    const bytes = issuer.ticket(node, nowS(), this.#floor());
    const ticket = decodeTicket(bytes, workerdCrypto);
    const { session, expires } = ticket;
    this.#admissions.add({ session, token: node.tokenId, ticket: bytes, expires });
    return {
      session,
      ticket: bytes,
      expires,
      issuer: ticket.issuer,
      issuers: this.#authority.listed,
      gateway: issuer.id,
    };
  }

  #floor(): number {
    const { certificate, issuer } = this.#authority.issuer;
    const own = this.#replica.floors(issuer).find((floor) => floor.certificate.keyName === certificate.keyName);
    return own?.at ?? 0;
  }

  /** A join token is good no more: what it let in ends, also what has not yet said a word. */
  revokeToken(token: string): number {
    const admitted = this.#admissions.of(token);
    for (const { ticket } of admitted) this.#evict(decodeTicket(ticket, workerdCrypto), 'token-revoked');
    return admitted.length;
  }

  /** Ends a session by the operator's word. False: it is not one that we admitted, or not known. */
  evict(session: string): boolean {
    const entry = this.#replica.get(session);
    return entry !== undefined && this.#evict(entry.ticket, 'operator');
  }

  /** False where another gateway admitted it: only who admits evicts. */
  #evict(ticket: Ticket, reason: string): boolean {
    const eviction = this.#authority.issuer.eviction(ticket, reason);
    if (eviction === undefined) return false;
    this.#merge({ ...eviction, ticket: ticket.bytes });
    this.#admissions.forget(ticket.session);
    return true;
  }

  // --- what sessions say ----------------------------------------------------------------------------------------------

  /** A session's own word, up its tunnel, which is therefore open. */
  publish(session: string, ticketBytes: Uint8Array, words: Uint8Array): Published {
    this.#words++;
    let ticket: Ticket;
    let update: Update;
    try {
      ticket = decodeTicket(ticketBytes, workerdCrypto);
      update = decodeUpdate(words);
    } catch (error) {
      if (error instanceof LatticeError) return { kind: 'refused', reason: error.message };
      throw error;
    }
    if (update.kind !== 'entry' || update.record === undefined || update.eviction !== undefined)
      return { kind: 'refused', reason: 'not a record' };
    if (!this.#authority.accepts(ticket.issuer)) return { kind: 'over', reason: 'its issuer is not listed here' };
    if (ticket.expires <= nowS()) return { kind: 'over', reason: 'its ticket has ended' };
    const result = this.#merge({ ...update, ticket: ticketBytes });
    switch (result.outcome) {
      case 'rejected':
        return { kind: 'refused', reason: result.message };
      case 'deferred':
        return { kind: 'refused', reason: `its ${result.lacks} is missing` };
      case 'collected':
        return { kind: 'over', reason: 'collected' };
      case 'merged':
      case 'known':
      case 'older': {
        if (!result.sessions.includes(session)) return { kind: 'refused', reason: "another session's record" };
        const entry = this.#replica.get(session);
        if (entry?.eviction !== undefined) return { kind: 'over', reason: `evicted: ${entry.eviction.reason}` };
        this.#roster.tunnel(session, 'open', entry);
        this.#roster.suspect(session, false, entry);
        return { kind: 'stored' };
      }
    }
  }

  /** Its tunnel here is gone: not routed to until it is back. */
  closed(session: string): void {
    this.#words++;
    this.#roster.tunnel(session, 'closed', this.#replica.get(session));
  }

  /** A path to the session failed: not routed to until it speaks again. */
  suspect(session: string): void {
    this.#words++;
    this.#roster.suspect(session, true, this.#replica.get(session));
  }

  /** The path that failed works again. */
  trust(session: string): void {
    this.#words++;
    this.#roster.suspect(session, false, this.#replica.get(session));
  }

  /** Whether a session's agent answers its tunnel to this gateway. `unknown`: it has none here. */
  async probe(session: string): Promise<ProbeVerdict> {
    this.#words++;
    const tunnel = this.#roster.tunnelOf(session);
    if (tunnel !== 'open') return tunnel === undefined ? 'unknown' : 'silent';
    return this.env.TUNNEL.getByName(session).probe();
  }

  /** What an engine said last. False: it said so a moment ago. */
  keepLog(session: string, provider: string, text: string): boolean {
    return this.#logs.put({ session, provider, at: Date.now(), text });
  }

  log(session: string): LogTail | null {
    return this.#logs.get(session, Date.now()) ?? null;
  }

  #merge(update: Update) {
    const result = this.#replica.merge(update);
    if (result.outcome === 'merged') this.#changed(result.sessions);
    if (result.outcome === 'merged' && update.kind !== 'entry') this.#keepControl(result.issuer);
    return result;
  }

  #keepControl(issuer: string): void {
    for (const { certificate, bytes } of this.#replica.floors(issuer))
      this.#archive.keepControl(
        `${issuer}/floor/${certificate.keyName}`,
        encodeUpdate({ kind: 'floor', floor: bytes }),
      );
    for (const { keyName, bytes } of this.#replica.revocations(issuer))
      this.#archive.keepControl(`${issuer}/key/${keyName}`, encodeUpdate({ kind: 'revocation', revocation: bytes }));
  }

  #changed(sessions: readonly string[]): void {
    for (const session of sessions) {
      const entry = this.#replica.get(session);
      const wasOpen = this.#roster.isOpen(session);
      this.#roster.update(session, entry);
      this.#archive.touch(session);
      const eviction = entry?.eviction;
      if (wasOpen && (entry === undefined || eviction !== undefined))
        this.#end(session, eviction?.reason ?? 'collected');
    }
  }

  /** Its tunnel is told that the session is over; one that cannot be told finds out with its next word. */
  #end(session: string, reason: string): void {
    const telling = this.env.TUNNEL.getByName(session).end(reason);
    this.ctx.waitUntil(telling.catch(() => {}));
  }

  // --- what isolates ask ----------------------------------------------------------------------------------------------

  /** Settings and peers as they are stored now. */
  async reloadSettings(): Promise<void> {
    const [settings, peers] = await Promise.all([readSettings(this.env), readPeers(this.env)]);
    if (this.#authority.list(peers)) {
      const gone = this.#replica.setIssuers((issuer) => this.#authority.accepts(issuer));
      for (const session of gone) {
        if (this.#roster.isOpen(session)) this.#end(session, 'issuer-removed');
        this.#roster.remove(session);
        this.#archive.touch(session);
      }
      // A peer that was given another name: its providers are called by it.
      for (const { session, issuer } of [...this.#replica.entries()])
        if (this.#authority.nameOf(issuer) !== LOCAL_ISSUER) this.#roster.update(session, this.#replica.get(session));
    }
    const { listed, issuer } = this.#authority;
    this.#roster.store.set({ settings, issuers: listed, gateway: issuer.id });
  }

  /** What changed since `tag`, or null where the caller has it already. */
  async snapshot(tag: string | null, _fresh = true): Promise<SnapshotDelta | null> {
    this.#snapshots++;
    // A store that is down takes no node out of routing: settings follow when it is back.
    if (this.#roster.store.carried.settings === undefined) await this.reloadSettings().catch(() => {});
    return this.#roster.store.since(tag);
  }

  /** Answers: enough to know that it can. */
  ready(): RegistryCounters {
    return {
      sessions: this.#roster.size,
      snapshots: this.#snapshots,
      words: this.#words,
      messages: 0,
      issuer: this.#authority.source,
      issuerId: this.#authority.issuer.issuer,
    };
  }

  // --- time -----------------------------------------------------------------------------------------------------------

  async #armAlarm(): Promise<void> {
    if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(Date.now() + HOUSEKEEPING_MS);
  }

  override async alarm(): Promise<void> {
    await this.ctx.storage.setAlarm(Date.now() + HOUSEKEEPING_MS);
    for (const floor of this.#authority.issuer.floors(nowS())) this.#merge(floor);
    this.#roster.sweep();
    this.#admissions.sweep(nowS());
    this.#logs.sweep(Date.now());
  }
}

function nowS(): number {
  return Math.floor(Date.now() / 1000);
}

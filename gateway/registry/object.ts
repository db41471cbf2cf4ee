import { DurableObject } from 'cloudflare:workers';
import type { GossipMemory } from '../../shared/gossip/index.ts';
import { fromBase64url } from '../../shared/lattice/base64url.ts';
import { LatticeError } from '../../shared/lattice/error.ts';
import { Replica } from '../../shared/lattice/replica.ts';
import { decodeTicket, TICKET_MAX_BYTES, type Ticket } from '../../shared/lattice/ticket.ts';
import { decodeUpdate, encodeUpdate, type Update } from '../../shared/lattice/update.ts';
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import { readSettings } from '../accounts/settings.ts';
import type { Env } from '../env.ts';
import { workerdCrypto } from '../issuer/crypto.ts';
import { AUDIENCE_HEADER, PING_TEXT, PONG_TEXT } from '../tunnel/words.ts';
import { Admissions } from './admissions.ts';
import { Archive } from './archive.ts';
import { Authority } from './authority.ts';
import { GossipDriver } from './gossip-driver.ts';
import { GossipSockets } from './gossip-sockets.ts';
import { type ListedIssuer, LOCAL_ISSUER } from './issuers.ts';
import { type LogTail, LogTails } from './log-tails.ts';
import { readPeers } from './peers.ts';
import { Roster } from './roster.ts';
import type { SnapshotDelta } from './snapshot-store.ts';
import { TICKET_HEADER } from './tickets.ts';

/** There is one registry object per gateway. */
export const REGISTRY_NAME = 'registry';

/** Floors are signed, and what is too old is dropped, this often: the alarm of an object that sleeps otherwise. */
const HOUSEKEEPING_MS = 60 * 60_000;

/** An alarm may come so much later than it could. */
const ALARM_SLACK_MS = 1_000;

/** After a restart agents have so long to come back before anybody is asked about them. */
const COME_BACK_MS = 40_000;

/** What gossip must not forget is written this long after it changed. */
const REMEMBER_MS = 250;
const MEMORY = 'gossip';
const HOUSEKEEPING = 'housekeeping';

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
  /** From delegates. */
  messages: number;
  alarms: number;
  timers: number;
  /** Of tunnel objects, which they wake. */
  probes: number;
  delegates: number;
  /** Where the issuer's key is from. */
  issuer: 'environment' | 'own';
  issuerId: string;
  /** End of the gateway's certificate; seconds since 1970. */
  certificateEnds: number;
  /** Clusters of which nobody is evicted for now, because so many of their nodes turned suspect at once. */
  frozen: string[];
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
  readonly #sockets: GossipSockets;
  readonly #gossip: GossipDriver;
  #snapshots = 0;
  #words = 0;
  #messages = 0;
  #alarms = 0;
  #probes = 0;
  /** When the object is to be woken next for gossip. */
  #gossipAt = Number.POSITIVE_INFINITY;
  #remembering: ReturnType<typeof setTimeout> | null = null;

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
    const { id, issuer } = this.#authority.issuer;
    this.#roster.store.set({ issuers: this.#authority.listed, gateway: id });
    ctx.setWebSocketAutoResponse(new WebSocketRequestResponsePair(PING_TEXT, PONG_TEXT));
    this.#sockets = new GossipSockets(ctx, id, {
      opened: (session) => this.#gossip.handle({ type: 'opened', peer: session, inbound: true }),
      closed: (session) => this.#gossip.handle({ type: 'closed', peer: session }),
      message: (session, bytes) => this.#gossip.handle({ type: 'message', peer: session, bytes }),
    });
    this.#gossip = new GossipDriver({
      id,
      issuer,
      replica: this.#replica,
      memory: this.#memory(),
      now: () => Date.now(),
      send: (session, bytes) => this.#sockets.send(session, bytes),
      hangUp: (session, reason, bannedUntil) => this.#sockets.hangUp(session, reason, bannedUntil),
      changed: (sessions) => this.#changed(sessions),
      liveness: (session, liveness) => this.#judged(session, liveness),
      probe: (session) => this.#probe(session),
      evict: (session) => this.#signEviction(session),
      wakeAt: (at) => this.#wakeAt(at),
      remembered: () => this.#remember(),
      waitUntil: (work) => ctx.waitUntil(work),
    });
    this.#wakeUp();
    ctx.waitUntil(this.#armAlarm());
  }

  /** What gossip knew before the object slept. */
  #memory(): GossipMemory | undefined {
    const memory = this.ctx.storage.kv.get<GossipMemory>(MEMORY);
    if (memory === undefined || this.#sockets.sessions().length > 0) return memory;
    // No socket lived on: this was no sleep but a start, and with the sockets of delegates those of tunnels are gone, told or not.
    const known = new Set(memory.absent.map(([session]) => session));
    const now = Date.now();
    const missing = [...this.#roster.open()].filter((session) => !known.has(session));
    return {
      ...memory,
      absent: [...memory.absent, ...missing.map((session) => [session, now + COME_BACK_MS] as const)],
    };
  }

  #wakeUp(): void {
    const resumed = this.#sockets.sessions();
    const slept = resumed.length > 0;
    this.#gossip.handle({ type: 'start' });
    for (const peer of resumed) this.#gossip.handle({ type: 'opened', peer, inbound: true, resumed: true });
    if (!slept) return;
    for (const session of this.#roster.open())
      if (!this.#roster.get(session)?.suspected) this.#gossip.handle({ type: 'tunnel', session, open: true });
  }

  #remember(): void {
    this.#remembering ??= setTimeout(() => {
      this.#remembering = null;
      this.ctx.storage.kv.put(MEMORY, this.#gossip.memory);
    }, REMEMBER_MS);
  }

  #judged(session: string, liveness: 'alive' | 'unreachable' | 'suspected'): void {
    const entry = this.#replica.get(session);
    if (liveness === 'unreachable') return this.#roster.elsewhere(session, entry);
    this.#roster.suspect(session, 'gossip', liveness === 'suspected', entry);
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

  /** A new session's ticket, and whom to trust beside us. Null: our certificate is not valid now, so nobody would believe us. */
  admit(node: NewNode): AdmittedNode | null {
    const { issuer } = this.#authority;
    const { notBefore, notAfter } = issuer.certificate;
    if (nowS() < notBefore || nowS() >= notAfter) return null;
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
    const update = { ...eviction, ticket: ticket.bytes };
    this.#merge(update);
    this.#admissions.forget(ticket.session);
    this.#gossip.handle({ type: 'local', updates: [update] });
    return true;
  }

  /** Its grace is over. */
  #signEviction(session: string): Update | undefined {
    const ticket = this.#replica.get(session)?.ticket;
    const eviction = ticket && this.#authority.issuer.eviction(ticket, 'silent');
    if (ticket === undefined || eviction === undefined) return undefined;
    this.#merge(eviction);
    this.#admissions.forget(session);
    return { ...eviction, ticket: ticket.bytes };
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
    const whole = { ...update, ticket: ticketBytes };
    const result = this.#merge(whole);
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
        const wasOpen = this.#roster.isOpen(session);
        this.#roster.tunnel(session, 'open', entry);
        this.#roster.suspect(session, 'tunnel', false, entry);
        if (!wasOpen) this.#gossip.handle({ type: 'tunnel', session, open: true });
        if (result.outcome === 'merged') this.#gossip.handle({ type: 'local', updates: [whole] });
        // The answer waits for the disk (output gate): an agent that was told so may end, and one that serves is not forgotten.
        this.#archive.flush();
        return { kind: 'stored' };
      }
    }
  }

  /** Its tunnel here is gone: not routed to until it is back. */
  closed(session: string): void {
    this.#words++;
    if (!this.#roster.isOpen(session)) return;
    this.#roster.tunnel(session, 'closed', this.#replica.get(session));
    this.#gossip.handle({ type: 'tunnel', session, open: false });
    this.#remember();
  }

  /** A path to the session failed: not routed to until it speaks again. */
  suspect(session: string): void {
    this.#words++;
    this.#roster.suspect(session, 'tunnel', true, this.#replica.get(session));
    this.#gossip.handle({ type: 'doubt', session });
  }

  /** The path that failed works again. */
  trust(session: string): void {
    this.#words++;
    this.#roster.suspect(session, 'tunnel', false, this.#replica.get(session));
  }

  /** Whether a session's agent answers its tunnel to this gateway. `unknown`: it has none here. */
  probe(session: string): Promise<ProbeVerdict> {
    this.#words++;
    return this.#probe(session);
  }

  async #probe(session: string): Promise<ProbeVerdict> {
    if (!this.#roster.isOpen(session)) return 'unknown'; // not tried is not silent
    this.#probes++;
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
      this.#gossip.handle({ type: 'replaced', sessions: gone });
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
      messages: this.#messages,
      alarms: this.#alarms,
      timers: this.#gossip.timers,
      probes: this.#probes,
      delegates: this.#sockets.sessions().length,
      issuer: this.#authority.source,
      issuerId: this.#authority.issuer.issuer,
      certificateEnds: this.#authority.issuer.certificate.notAfter,
      frozen: this.#gossip.memory.frozen.map(([cluster]) => cluster),
    };
  }

  // --- time -----------------------------------------------------------------------------------------------------------

  async #armAlarm(): Promise<void> {
    const { storage } = this.ctx;
    const housekeeping = storage.kv.get<number>(HOUSEKEEPING) ?? 0;
    const due = Math.min(this.#gossipAt, housekeeping === 0 ? Date.now() + HOUSEKEEPING_MS : housekeeping);
    if (housekeeping === 0) storage.kv.put(HOUSEKEEPING, due);
    const armed = await storage.getAlarm();
    // An alarm that is due, or nearly, arms the next one itself; to move it now would cancel its handler.
    if (armed === null || due < armed - ALARM_SLACK_MS) await storage.setAlarm(due);
  }

  #wakeAt(at: number): void {
    this.#gossipAt = at;
    this.ctx.waitUntil(this.#armAlarm());
  }

  override async alarm(): Promise<void> {
    this.#alarms++;
    const now = Date.now();
    this.#sockets.sweep(now);
    this.#gossipAt = Number.POSITIVE_INFINITY;
    this.#gossip.handle({ type: 'timer' });
    if ((this.ctx.storage.kv.get<number>(HOUSEKEEPING) ?? 0) <= now) this.#keepHouse(now);
    await this.#armAlarm();
  }

  #keepHouse(now: number): void {
    this.ctx.storage.kv.put(HOUSEKEEPING, now + HOUSEKEEPING_MS);
    const floors = this.#authority.issuer.floors(nowS());
    for (const floor of floors) this.#merge(floor);
    this.#gossip.handle({ type: 'local', updates: floors });
    this.#roster.sweep();
    this.#admissions.sweep(nowS());
    this.#logs.sweep(now);
  }

  // --- delegates ------------------------------------------------------------------------------------------------------

  /** `GET /agent/gossip`: a session that the Worker let through, to be a peer. */
  override fetch(request: Request): Response {
    const bytes = fromBase64url(request.headers.get(TICKET_HEADER) ?? '', TICKET_MAX_BYTES);
    if (bytes === undefined || request.headers.get('upgrade') !== 'websocket')
      return new Response('no delegate', { status: 400 });
    const ticket = decodeTicket(bytes, workerdCrypto);
    const standing = this.#replica.standing(ticket);
    if (standing !== 'good') return new Response(`the session is ${standing}`, { status: 410 });
    return this.#sockets.accept(ticket, request.headers.get(AUDIENCE_HEADER) ?? '', Date.now());
  }

  override webSocketMessage(socket: WebSocket, message: string | ArrayBuffer): void {
    this.#messages++;
    this.#sockets.receive(socket, message);
  }

  override webSocketClose(socket: WebSocket): void {
    this.#sockets.gone(socket);
  }

  override webSocketError(socket: WebSocket): void {
    this.#sockets.gone(socket);
  }
}

function nowS(): number {
  return Math.floor(Date.now() / 1000);
}

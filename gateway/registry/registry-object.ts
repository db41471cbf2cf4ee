import { DEPLOYMENT_LABEL } from '../../shared/deployment/deployment-labels.ts';
import type { DeploymentRequest } from '../../shared/deployment/deployment-order.ts';
import { type FailureDetectionSettings, tunedOptions } from '../../shared/gossip/index.ts';
import { fromBase64url } from '../../shared/lattice/base64url.ts';
import type { RegistryEntry } from '../../shared/lattice/node-record.ts';
import { decodeTicket, TICKET_MAX_BYTES } from '../../shared/lattice/ticket.ts';
import type { LiveState } from '../../shared/routing/node-load.ts';
import type { SignedHead, StatementHead } from '../../shared/usage/signed-statement.ts';
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import { isAlwaysOn } from '../accounts/model-access.ts';
import type { Env } from '../env.ts';
import { workerdCrypto } from '../issuer/ed25519.ts';
import { IssuerError } from '../issuer/issuer.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import type { ObjectContext, ObjectSocket } from '../platform/object-context.ts';
import { writeIfPossible } from '../platform/storage/storage-health.ts';
import { nowS } from '../platform/unix-time.ts';
import type { GatewayGossipDriver } from './gossip/gossip-driver.ts';
import type { GossipSockets } from './gossip/gossip-sockets.ts';
import type { GossipTuning } from './gossip-tuning.ts';
import type { IssuerAuthority } from './issuer-authority.ts';
import { type Move, PendingMoves } from './pending-moves.ts';
import { AUDIENCE_HEADER } from './proven-sockets.ts';
import type { RegistryCounters } from './registry-counters.ts';
import { createRegistryParts } from './registry-parts.ts';
import type { SessionReachability } from './session-reachability.ts';
import type { NewNode, PublishResult, SessionRegistry } from './session-registry.ts';
import type { SharedAlarm } from './shared-alarm.ts';
import { type OrderReply, orderFor } from './sign-order.ts';
import type { SnapshotSettings } from './snapshot-settings.ts';
import type { SnapshotDelta } from './snapshot-store.ts';
import { TICKET_HEADER } from './verify-agent-ticket.ts';
import type { LogTail, LogTails } from './views/engine-log-tails.ts';
import { findSessions, type SessionFilter, type SessionPage } from './views/find-sessions.ts';
import { type NodeCensus, takeCensus } from './views/node-census.ts';
import type { HistoryEvent, HistoryQuery, NodeEventLog } from './views/node-event-log.ts';

/**
 * The registry object: one replica of the registry, and the gateway's gossip peer. Requests never call it; isolates
 * read its snapshots as differences. Stored in SQLite: the lattice, the shown state of sessions, gossip's memory, which
 * token admitted which session, the last output of failed engines, the history of nodes, and the issuer's keys if the
 * environment has none. The object reads all of this at its start, and writes it with a delay.
 */
export class RegistryObject extends GatewayObject {
  readonly #authority: IssuerAuthority;
  readonly #tuning: GossipTuning;
  readonly #logs: LogTails;
  readonly #history: NodeEventLog;
  readonly #clock: SharedAlarm;
  readonly #members: SessionRegistry;
  readonly #sockets: GossipSockets;
  readonly #gossip: GatewayGossipDriver;
  readonly #paths: SessionReachability;
  readonly #settings: SnapshotSettings;
  readonly #moves: PendingMoves;
  #snapshots = 0;
  #sessionCalls = 0;
  #messages = 0;
  #alarms = 0;
  #probes = 0;
  #doubles = 0;

  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    const parts = createRegistryParts(ctx, env, {
      ended: (session, reason) => this.#end(session, reason),
      onSettings: ({ membership }) => this.#tune(membership),
      probe: (session) => this.#probe(session),
    });
    this.#authority = parts.authority;
    this.#tuning = parts.tuning;
    this.#logs = parts.logs;
    this.#history = parts.history;
    this.#clock = parts.clock;
    this.#members = parts.members;
    this.#sockets = parts.sockets;
    this.#gossip = parts.gossip;
    this.#paths = parts.paths;
    this.#settings = parts.settings;
    this.#moves = new PendingMoves(ctx.storage);
    this.#wakeUp();
    ctx.waitUntil(this.#clock.arm());
  }

  #wakeUp(): void {
    const resumed = this.#sockets.sessions;
    this.#gossip.handle({ type: 'start' });
    for (const peer of resumed) this.#gossip.handle({ type: 'opened', peer, inbound: true, resumed: true });
    if (resumed.length > 0) this.#paths.wake();
  }

  #tune(membership: FailureDetectionSettings): void {
    if (!this.#tuning.set(membership, writeIfPossible)) return;
    this.#gossip.handle({ type: 'tuned', options: tunedOptions(membership) });
    this.#members.sessions.retentionMs = membership.retention_ms;
    this.#members.sessions.sweep();
  }

  // --- admission, and calls about sessions ---

  /**
   * Admits a session: returns its ticket, or the reason for a refusal. Null: our certificate is not valid now, so no
   * gateway would accept the ticket.
   */
  admit(node: NewNode): ReturnType<SessionRegistry['admit']> {
    return this.#members.admit(node);
  }

  /** Ends all sessions that a revoked join token admitted, including those that have sent no record yet. */
  revokeToken(token: string, frees: boolean): number {
    return this.#members.revokeToken(token, frees);
  }

  /** Returns for each join token how many nodes count against its limit now. */
  places(tokens: readonly string[]): number[] {
    return this.#members.places(tokens);
  }

  /** Evicts a session for the operator. False: this gateway does not know the session, or did not admit it. */
  evict(session: string): boolean {
    return this.#members.evict(session);
  }

  /**
   * Signs an order to one session, or returns the reason why the session cannot get it. The caller sends the order on
   * the session's tunnel. Without `wish`: the empty order, which only requests the deployment's state.
   */
  order(session: string, wish?: DeploymentRequest): OrderReply {
    return orderFor(session, wish, { authority: this.#authority, members: this.#members, nowS: nowS() });
  }

  /** Signs a statement of usage for a peer institution; a reason: this gateway's key cannot sign. */
  signStatement(statement: StatementHead): SignedHead | { reason: string } {
    try {
      return this.#authority.issuer.statement(statement);
    } catch (error) {
      if (error instanceof IssuerError) return { reason: error.message };
      throw error;
    }
  }

  /** Handles a session's own record. It arrived on the session's tunnel, so the tunnel is open. */
  publish(session: string, ticket: Uint8Array, update: Uint8Array): PublishResult {
    this.#sessionCalls++;
    const result = this.#members.publish(session, ticket, update);
    const shown = this.#members.sessions.get(session);
    if (result.kind === 'stored' && shown !== undefined) this.#finishMove(shown);
    return result;
  }

  /** Unloads a model from its old node when its new deployment serves. False: too many moves wait. */
  expectMove(move: Move): boolean {
    if (!this.#moves.add(move, Date.now())) return false;
    // The new deployment may serve already.
    for (const entry of [...this.#members.sessions.entries()]) this.#finishMove(entry);
    return true;
  }

  #finishMove(entry: RegistryEntry): void {
    const move = this.#moves.finishedBy(entry, Date.now());
    if (move === undefined) return;
    const { fromDeployment: id, fromProvider: provider, drainMs } = move;
    // The old node may have a new session since the move began. The deployment's id finds it.
    const old = [...this.#members.sessions.entries()].find(
      (one) => one.state !== 'LEFT' && one.provider === provider && one.labels[DEPLOYMENT_LABEL] === id,
    );
    const reply = old && this.order(old.session, { action: 'stop', id, drain_ms: drainMs });
    if (old === undefined || reply?.kind !== 'signed') {
      console.error(`move of ${move.model}: deployment ${id} cannot be unloaded: ${reply?.kind ?? 'it has ended'}`);
      return;
    }
    const sent = this.env.TUNNEL.getByName(old.session).deploy(reply.order);
    this.ctx.waitUntil(sent.catch((error) => console.error(`move of ${move.model}: session ${old.session}: ${error}`)));
  }

  /**
   * Handles the record of a session whose agent was killed. Calls the session's tunnel object only if the session had a
   * tunnel here, because a call with any other name would create an object.
   */
  async left(ticket: Uint8Array, record: Uint8Array): Promise<void> {
    this.#sessionCalls++;
    const { session } = decodeTicket(ticket, workerdCrypto);
    const before = this.#members.sessions.get(session);
    const isHere = before?.connected === true || before?.suspected === true;
    if (this.#members.left(ticket, record) && isHere) await this.env.TUNNEL.getByName(session).agentDied();
  }

  /** The session's tunnel to this gateway has closed. No requests are routed to it until it reconnects. */
  closed(session: string): void {
    this.#sessionCalls++;
    // The agent may have another socket, to another process of this gateway.
    if (this.env.PROCESSES?.isConnected(session) !== true) this.#paths.closed(session);
  }

  /** Another process of this gateway has these sessions' sockets, and can be reached again. */
  reopened(sessions: readonly string[]): void {
    this.#sessionCalls++;
    for (const session of sessions) this.#paths.reopened(session);
  }

  /** A path to the session failed. No requests are routed to it until it sends something again. */
  suspect(session: string): void {
    this.#sessionCalls++;
    this.#paths.suspect(session);
  }

  /** The failed path to the session works again. */
  trust(session: string): void {
    this.#sessionCalls++;
    this.#paths.clearSuspicion(session);
  }

  /** Sets the live state of a session, which is valid for seconds only. It is part of snapshots and is not stored. */
  live(session: string, news: LiveState): void {
    this.#members.sessions.store.setLive(session, news);
  }

  /** Counts that a node completed an attempt after its request had moved to another node. */
  double(): void {
    this.#doubles++;
  }

  /** Checks that a session's agent answers on its tunnel to this gateway. `unknown`: it has no tunnel here. */
  probe(session: string): Promise<ProbeVerdict> {
    this.#sessionCalls++;
    return this.#probe(session);
  }

  /**
   * Notifies a session's agent that a caller waits for it at this circuit. False: the session is not connected here.
   */
  async call(session: string, circuit: string): Promise<boolean> {
    return this.#members.sessions.isOpen(session) && this.env.TUNNEL.getByName(session).call(circuit);
  }

  async #probe(session: string): Promise<ProbeVerdict> {
    if (!this.#members.sessions.isOpen(session)) return 'unknown'; // a session that was not probed must not count as silent
    this.#probes++;
    return this.env.TUNNEL.getByName(session).probe();
  }

  /** Stores a failed engine's last output. False: the session sent one a moment ago. */
  keepLog(session: string, provider: string, text: string): boolean {
    return this.#logs.put({ session, provider, at: Date.now(), text });
  }

  log(session: string): LogTail | null {
    return this.#logs.get(session, Date.now()) ?? null;
  }

  /** Returns joins and losses of nodes, newest first. Returns one more than requested if there are more. */
  history(asked: HistoryQuery): HistoryEvent[] {
    return this.#history.list(asked);
  }

  /**
   * Reports to the session's tunnel object that the session has ended. If this call fails, the object learns it from
   * the answer to the session's next record.
   */
  #end(session: string, reason: string): void {
    const telling = this.env.TUNNEL.getByName(session).end(reason);
    this.ctx.waitUntil(telling.catch(() => {}));
  }

  // --- requests of isolates ---

  /** Reads settings and peer institutions from D1 again. */
  reloadSettings(): Promise<void> {
    return this.#settings.reload();
  }

  /** Returns the changes since `tag`; null: the caller is up to date. */
  async snapshot(tag: string | null, _fresh = true): Promise<SnapshotDelta | null> {
    this.#snapshots++;
    // If D1 is unavailable, nodes still get requests: the settings follow when D1 is available again.
    if (this.#members.sessions.store.carried.settings === undefined) await this.#settings.first();
    return this.#members.sessions.store.since(tag);
  }

  /** Returns the object's counters. A response proves that the object is running. */
  ready(): RegistryCounters {
    return {
      sessions: this.#members.sessions.size,
      snapshots: this.#snapshots,
      words: this.#sessionCalls,
      messages: this.#messages,
      alarms: this.#alarms,
      timers: this.#gossip.timers,
      probes: this.#probes,
      doubles: this.#doubles,
      delegates: this.#sockets.sessions.length,
      departures: this.#history.departures,
      issuer: this.#authority.source,
      issuerId: this.#authority.issuer.issuer,
      certificateEnds: this.#authority.issuer.certificate.notAfter,
      frozen: this.#gossip.memory.frozen.map(([cluster]) => cluster),
    };
  }

  /** Returns a page of sessions by name, with their live state that is valid for seconds only. */
  look(wanted: SessionFilter): SessionPage {
    return findSessions(this.#members.sessions, wanted);
  }

  /** Returns the registry in numbers, for monitoring. */
  census(): NodeCensus {
    const { sessions } = this.#members;
    const [catalogue, now] = [sessions.store.carried.settings?.catalogue ?? {}, Date.now()];
    const listed = Object.entries(catalogue);
    const sunsets = listed.flatMap(([model, { sunset_at: at }]) => (at === undefined ? [] : [[model, at / 1000]]));
    return {
      ...takeCensus(sessions, now),
      sunsets: Object.fromEntries(sunsets),
      alwaysOn: Object.keys(catalogue).filter((model) => isAlwaysOn({ catalogue }, model, now)),
      counters: this.ready(),
    };
  }

  // --- time -----------------------------------------------------------------------------------------------------------

  async alarm(): Promise<void> {
    this.#alarms++;
    const now = Date.now();
    this.#sockets.sweep(now);
    this.#clock.onAlarm();
    this.#gossip.handle({ type: 'timer' });
    if (this.#clock.isHousekeeping(now)) this.#cleanUp(now);
    await this.#clock.arm();
  }

  #cleanUp(now: number): void {
    // If the disk is full, old data is kept until the next hour.
    writeIfPossible(() => {
      this.#members.cleanUp();
      this.#logs.sweep(now);
      this.#history.sweep(now);
    });
  }

  // --- delegates ------------------------------------------------------------------------------------------------------

  /** `GET /agent/gossip`: a session with a ticket that the Worker has verified becomes a gossip peer. */
  fetch(request: Request): Response {
    const bytes = fromBase64url(request.headers.get(TICKET_HEADER) ?? '', TICKET_MAX_BYTES);
    if (bytes === undefined || request.headers.get('upgrade') !== 'websocket')
      return new Response('no delegate', { status: 400 });
    const ticket = decodeTicket(bytes, workerdCrypto);
    const state = this.#members.replica.ticketState(ticket);
    if (state !== 'good') return new Response(`the session is ${state}`, { status: 410 });
    return this.#sockets.accept(ticket, request.headers.get(AUDIENCE_HEADER) ?? '', Date.now());
  }

  webSocketMessage(socket: ObjectSocket, message: string | Uint8Array): void {
    this.#messages++;
    this.#sockets.receive(socket, message);
  }

  webSocketClose(socket: ObjectSocket): void {
    this.#sockets.gone(socket);
  }

  webSocketError(socket: ObjectSocket): void {
    this.#sockets.gone(socket);
  }
}

import type { BatchStamp } from '../../shared/batch/agent-request.ts';
import type { PeerEvidence } from '../../shared/routing/hang/hang-detector.ts';
import type { HangSuspicion } from '../../shared/routing/hang/hang-suspicion.ts';
import type { NodeLoad } from '../../shared/routing/load.ts';
import type { AttemptRequest } from '../../shared/upstream/attempt.ts';
import type { OutboundAttempt } from '../../shared/upstream/outbound-attempt.ts';
import { Watchdog } from '../../shared/upstream/watchdog.ts';
import type { UsageRecord } from '../../shared/usage/usage-record.ts';
import { CLOSE_CODES } from '../../shared/wire/close.ts';
import type { Frame, ProbeVerdict } from '../../shared/wire/frames.ts';
import { CIRCUIT_FRAME } from '../../shared/wire/limits.ts';
import type { Env } from '../env.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import type { ObjectContext, ObjectSocket } from '../platform/object-context.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { storageHealth } from '../platform/storage/health.ts';
import { waitClock } from '../platform/wait-clock.ts';
import { RECORDS_PER_STATEMENT } from '../usage/usage-table.ts';
import { BatchStamps, type StampVerdict } from './batch-stamps.ts';
import { type EncodedCallResult, encodeCallResult, OPEN_HEADER } from './call/attempt-call.ts';
import { LocalTunnel } from './call/local-calls.ts';
import { comparePeers } from './compare-peers.ts';
import { ControlFrames } from './control-frames.ts';
import { HangMemory } from './hang-memory.ts';
import { OpeningProofs } from './opening-proofs.ts';
import type { NodeError } from './recent-errors.ts';
import { RegistryNotifier } from './registry-notifier.ts';
import { SessionAttempts } from './session-attempts.ts';
import type { AgentSocket } from './socket.ts';
import { AgentSockets } from './sockets.ts';
import { StreamIds } from './stream-ids.ts';
import { Ticker } from './ticker.ts';
import { TunnelUsage } from './tunnel-usage.ts';

/** An agent with open streams that was silent for so long is asked whether it is there. */
const QUIET_MS = 5_000;
/** It has so long to answer. With `QUIET_MS` above the 15 s between heartbeats: one may pass a slow line where our question does not. */
const SIGN_OF_LIFE_MS = 12_000;

/** One node as its tunnel's object knows it now. */
export interface TunnelStatus {
  /** Requests that run there. */
  open: number;
  /** Of its socket; milliseconds since the epoch. */
  connectedAt: number;
  /** Records of use that are not handed on. */
  outbox: number;
  /** The highest number of a frame that its agent reads; 0: it did not say. */
  reads: number;
  /** When it was last heard, a heartbeat included. */
  heardAt: number;
  errors: NodeError[];
}

/**
 * Owns one node session's socket and its streams. The agent is the first to touch the object, so the object lives near the agent.
 *
 * Survives hibernation: the sockets and their attachments (see SocketAttachment), reserved stream numbers, usage records, and whether the
 * engine is taken to hang.
 * Does not survive: open attempts. The Worker claims them from the next instance.
 */
export class TunnelObject extends GatewayObject {
  readonly #session: string;
  readonly #attempts: SessionAttempts;
  readonly #usage: TunnelUsage;
  readonly #sockets: AgentSockets;
  readonly #stamps = new BatchStamps(() => Date.now());
  readonly #watchdog = new Watchdog(QUIET_MS, SIGN_OF_LIFE_MS);
  /** When the agent was last heard, as of the last tick: a change is what counts, since the machine's clock may be set. */
  #heardAt = 0;
  readonly #ticker = new Ticker(this.ctx.clock, {
    judge: (now) => {
      this.#attempts.tick(now);
      this.#watch(now);
    },
    store: (now) => this.#usage.store(now),
    idle: () => this.#attempts.idle,
    rested: () => this.#sockets.save(true),
  });
  readonly #registry: RegistryNotifier;
  readonly #frames: ControlFrames;
  /** While a socket is here, on a host that has all objects in one process. */
  #callee: LocalTunnel | undefined;

  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    this.#session = ctx.name;
    storageHealth.holdAtMost(env.USAGE_HELD_RECORDS === undefined ? undefined : Number(env.USAGE_HELD_RECORDS));
    this.#sockets = new AgentSockets(ctx.sockets, this.#session, {
      activated: (peer) => this.#onActive(peer),
      replaced: () => {
        this.#frames.abandon();
        this.#attempts.disconnect();
      },
      idle: () => this.#attempts.open === 0,
      stuck: (peer) => {
        peer.close(CLOSE_CODES.silent, 'does not read what it is sent');
        this.#gone(peer);
      },
    });
    const ids = new StreamIds(ctx);
    const proofs = new OpeningProofs({
      session: this.#session,
      env,
      nextStream: () => ids.next(),
      running: (name) => this.#attempts.running(name),
      waitUntil: (work) => ctx.waitUntil(work),
    });
    const hangs = new HangMemory(ctx.storage.kv);
    const events = {
      busy: () => this.#busy(),
      silent: () => this.#registry.silent(this.#sockets.active === undefined),
      double: () => this.#registry.double(),
      load: () => this.#frames.load,
      compare: () => ctx.waitUntil(this.#compare()),
      onSuspicion: (suspicion: HangSuspicion | undefined) =>
        this.#registry.live({ breaker: hangs.keep(suspicion, waitClock.now(), Date.now()) }),
    };
    this.#attempts = new SessionAttempts(
      this.#session,
      ids,
      env.LOCAL_OFFLOADS?.of(this.#session),
      proofs,
      events,
      hangs.suspicion,
    );
    this.#registry = new RegistryNotifier({
      session: this.#session,
      env,
      waitUntil: (work) => ctx.waitUntil(work),
      refused: (peer) => this.#gone(peer),
      lost: () => this.#onLost(),
    });
    this.#usage = new TunnelUsage({
      session: this.#session,
      ctx,
      env,
      attempts: this.#attempts,
      settled: (streams) => this.#sockets.active?.link.put({ type: 'settled', streams: [...streams] }),
    });
    this.#frames = new ControlFrames({
      session: this.#session,
      ctx,
      registry: this.#registry,
      outbox: this.#usage.outbox,
      anomalies: this.#usage.anomalies,
      waitUntil: (work) => ctx.waitUntil(work),
      open: () => this.#attempts.open,
    });
    this.#usage.outbox.wake();
    this.#sockets.wake();
  }

  #onActive(peer: AgentSocket): void {
    this.#usage.provider = peer.attachment.provider;
    this.#attempts.connect(peer.link);
    if (this.env.OBJECTS_STAY !== 'on' || this.#callee !== undefined) return;
    this.#callee = new LocalTunnel(this.#session, (call) =>
      this.#attempts.callLocally(call.open, call.body, (result) => call.answer(result)),
    );
  }

  async fetch(request: Request): Promise<Response> {
    if (request.headers.get('upgrade') === 'websocket') return this.#sockets.accept(request);
    const open = request.headers.get(OPEN_HEADER);
    if (open === null) return new Response('not an attempt', { status: 400 });
    return this.#attempts.fetch(JSON.parse(open) as AttemptRequest, request);
  }

  /** A small request whose answer may come whole. `open`: an AttemptRequest as JSON, which costs less to hand over than its members. */
  attempt(open: string, body: Uint8Array): Promise<EncodedCallResult> {
    return new Promise((resolve) => {
      this.#attempts.call(JSON.parse(open) as AttemptRequest, body, (result) => resolve(encodeCallResult(result)));
    });
  }

  /** An attempt that came as a call is neither answered nor fetched. */
  holds(requestId: string, attempt: number): boolean {
    return this.#attempts.holds({ requestId, attempt });
  }

  /** For queues: how many requests the engine is done with, once that number differs from `seen`. */
  ended(seen: number): Promise<number> {
    return this.#attempts.completions.after(seen);
  }

  /** The client of an attempt that came as a call has left. */
  leave(requestId: string, attempt: number): void {
    this.#attempts.leave({ requestId, attempt });
  }

  /** How long requests wait here for their first byte. Used to judge another node whose engine answers no request. */
  firstBytes(): PeerEvidence {
    return this.#attempts.firstBytes();
  }

  /** A registry that is just moving names no peers: the next tick asks again. */
  async #compare(): Promise<void> {
    const peers = await comparePeers(this.env, this.#session).catch(() => []);
    this.#attempts.judge(peers);
  }

  /** The newest usage records of this session. */
  usage(limit: number): UsageRecord[] {
    return this.#usage.newest(limit);
  }

  /** Of a request for work of batches that this session signed. */
  takeStamp(stamp: BatchStamp): StampVerdict {
    return this.#stamps.take(stamp);
  }

  /** For operators who look at this node. Null: no agent is connected. */
  status(): TunnelStatus | null {
    const { active } = this.#sockets;
    if (active === undefined) return null;
    const { connectedAt, reads = 0 } = active.attachment;
    return {
      reads,
      heardAt: this.#sockets.heardAt(active),
      open: this.#attempts.open,
      connectedAt,
      outbox: this.#usage.waiting,
      errors: this.#attempts.errors.list(),
    };
  }

  /** The engine's loads of the last hour, as far as this object's memory goes; the oldest first. */
  loads(): NodeLoad[] {
    return this.#frames.loads(Date.now());
  }

  // --- the agent's side ---------------------------------------------------------------------------------------------

  webSocketMessage(socket: ObjectSocket, message: string | ArrayBuffer): void {
    const peer = this.#sockets.of(socket);
    if (peer === undefined) return socket.close(CLOSE_CODES.resync, 'unknown socket');
    let hello: Extract<Frame, { type: 'hello' }> | undefined;
    const touched = new Set<OutboundAttempt>();
    const fine = peer.receive(message, (frame) => {
      if (frame.type === 'hello') hello = frame;
      else if (peer === this.#sockets.active) this.#onFrame(peer, frame, touched);
    });
    if (!fine) return this.#gone(peer);
    this.#sockets.heard(Date.now());
    if (peer === this.#sockets.active) this.#registry.heard();
    for (const upstream of touched) upstream.onMessageEnd();
    this.#sockets.settle(peer);
    if (this.#attempts.due >= RECORDS_PER_STATEMENT) this.#usage.store(steadyNow());
    if (hello !== undefined) this.#sockets.greet(peer, hello);
  }

  #onFrame(peer: AgentSocket, frame: Frame, touched: Set<OutboundAttempt>): void {
    switch (frame.type) {
      case 'report':
      case 'accept':
      case 'head':
      case 'data':
      case 'end':
      case 'reset':
        return this.#attempts.onFrame(peer.link, frame, touched);
      default:
        return this.#frames.receive(peer, frame);
    }
  }

  /** The session is over: its agent needs a new one. */
  end(reason: string): void {
    const { active } = this.#sockets;
    if (active === undefined) return;
    active.close(CLOSE_CODES.over, reason);
    this.#gone(active);
  }

  /** The agent was killed and will not dial again. Its attempts fail now, not when the time for its return is up. */
  agentDied(): void {
    this.end('its agent was killed');
    this.#attempts.abandon();
  }

  /** Whether the agent answers on its tunnel. `unknown`: there is no tunnel. */
  probe(): Promise<ProbeVerdict> {
    const { active } = this.#sockets;
    return active === undefined ? Promise.resolve('unknown') : this.#frames.probe(active);
  }

  /** Tells the agent that a caller waits for it at this circuit. False: there is no tunnel, or the agent knows no circuits. */
  call(circuit: string): boolean {
    const { active } = this.#sockets;
    if (active === undefined || (active.attachment.reads ?? 0) < CIRCUIT_FRAME) return false;
    active.link.put({ type: 'circuit', name: circuit });
    return true;
  }

  /** Sends an order; an empty one only asks. Resolves with the agent's answer, JSON. Null: no answer, or no tunnel. */
  deploy(order: Uint8Array): Promise<string | null> {
    const { active } = this.#sockets;
    return active === undefined ? Promise.resolve(null) : this.#frames.deploy(active, order);
  }

  webSocketClose(socket: ObjectSocket): void {
    const peer = this.#sockets.of(socket);
    if (peer !== undefined) this.#gone(peer);
  }

  webSocketError(socket: ObjectSocket): void {
    this.webSocketClose(socket);
  }

  #gone(peer: AgentSocket): void {
    if (!this.#sockets.gone(peer)) return;
    this.#callee?.close();
    this.#callee = undefined;
    this.#frames.abandon();
    this.#attempts.disconnect();
    this.#registry.closed();
  }

  #onLost(): void {
    const { active } = this.#sockets;
    if (active === undefined) return;
    active.close(CLOSE_CODES.resync, 'the registry cannot be reached'); // the agent comes back and sends its record again
    this.#gone(active);
  }

  // --- while something is open ----------------------------------------------------------------------------------------

  /** Something is open, or to be settled. */
  #busy(): void {
    this.#sockets.save(false);
    this.#ticker.begin();
  }

  alarm(): Promise<void> {
    return this.#usage.outbox.onAlarm();
  }

  /** A lost line closes no socket. Without this its streams would wait until their own time-outs. */
  #watch(now: number): void {
    const { active } = this.#sockets;
    if (active === undefined || this.#attempts.open === 0) return this.#watchdog.heard(now);
    const heardAt = this.#sockets.heardAt(active);
    if (heardAt !== this.#heardAt) this.#watchdog.heard(now);
    this.#heardAt = heardAt;
    switch (this.#watchdog.look(now)) {
      case 'wait':
        return;
      case 'ask':
        return void this.#frames.probe(active);
      case 'gone':
        active.close(CLOSE_CODES.silent, 'no sign of life');
        this.#gone(active);
    }
  }
}

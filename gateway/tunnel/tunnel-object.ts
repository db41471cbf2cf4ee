import type { AttemptRequest } from '../../shared/attempts/attempt-request.ts';
import type { OutboundAttempt } from '../../shared/attempts/outbound-attempt.ts';
import { PeerWatchdog } from '../../shared/attempts/peer-watchdog.ts';
import type { BatchStamp } from '../../shared/batch/batch-signature.ts';
import type { PeerEvidence } from '../../shared/routing/hang/hang-detector.ts';
import type { NodeLoad } from '../../shared/routing/node-load.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { UsageRecord } from '../../shared/usage/usage-record.ts';
import { CLOSE_CODES } from '../../shared/wire/close-codes.ts';
import type { Frame, ProbeVerdict } from '../../shared/wire/frames.ts';
import { lostCreditText } from '../../shared/wire/lost-credit.ts';
import { CIRCUIT_FRAME } from '../../shared/wire/protocol-constants.ts';
import type { Env } from '../env.ts';
import { environmentNumber } from '../environment-checks.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import type { ObjectContext, ObjectSocket } from '../platform/object-context.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { storageHealth } from '../platform/storage/storage-health.ts';
import { closeSocket } from '../registry/proven-sockets.ts';
import { RECORDS_PER_STATEMENT } from '../usage/outbox/usage-record-table.ts';
import type { AgentSocket } from './agent-socket.ts';
import type { AgentSockets } from './agent-sockets.ts';
import { BatchReplayGuard, type StampVerdict } from './batch-replay-guard.ts';
import { type EncodedCallResult, encodeCallResult, OPEN_HEADER } from './call/call-encoding.ts';
import { LocalTunnel } from './call/local-calls.ts';
import type { ControlFrames } from './control-frames.ts';
import type { NodeError } from './recent-errors.ts';
import type { RegistryNotifier } from './registry-notifier.ts';
import { readReplicaEvidence } from './replica-evidence.ts';
import { Ticker } from './ticker.ts';
import type { TunnelAttempts } from './tunnel-attempts.ts';
import { createTunnelParts } from './tunnel-parts.ts';
import type { TunnelUsage } from './tunnel-usage.ts';

/** An agent with open streams that has sent nothing for this time gets a probe. */
const QUIET_MS = 5_000;
/**
 * Maximum time for the answer to the probe. Together with `QUIET_MS` it is longer than the 15 s between heartbeats,
 * because on a slow line a heartbeat may arrive although the answer does not.
 */
const SIGN_OF_LIFE_MS = 12_000;

/** The current state of one node, as its tunnel object knows it. */
export interface TunnelStatus {
  /** Number of requests that run at the node. */
  open: number;
  /** When the node's socket connected; milliseconds since the epoch. */
  connectedAt: number;
  /** Number of usage records that have not been forwarded yet. */
  outbox: number;
  /** The highest frame type that the agent reads (FRAMES_HEADER); 0: the agent did not report it. */
  reads: number;
  /** When the gateway last received something from the agent, including a heartbeat; milliseconds since the epoch. */
  heardAt: number;
  errors: NodeError[];
}

/**
 * The tunnel object: it has one session's socket and the streams on it. The agent is the first to call the object, so
 * that the object is created near the agent. What survives hibernation: the sockets and their attachments (see
 * TunnelAttachment), reserved stream numbers, usage records, and whether the engine is suspected to hang. Open attempts
 * do not survive; the Worker claims them from the next instance.
 */
export class TunnelObject extends GatewayObject {
  readonly #session: string;
  readonly #attempts: TunnelAttempts;
  readonly #usage: TunnelUsage;
  readonly #sockets: AgentSockets;
  readonly #stamps = new BatchReplayGuard(() => Date.now());
  readonly #watchdog = new PeerWatchdog(QUIET_MS, SIGN_OF_LIFE_MS);
  /**
   * When the agent last sent something, as of the last tick. It is only compared with its new value and never with the
   * clock, because the machine's clock may be set.
   */
  #receivedAt = 0;
  readonly #ticker = new Ticker(this.ctx.clock, {
    judge: (now) => {
      this.#attempts.tick(now);
      this.#watch(now);
    },
    store: (now) => this.#usage.store(now),
    idle: () => this.#attempts.idle,
    rested: () => this.#rest(),
  });
  readonly #registry: RegistryNotifier;
  readonly #frames: ControlFrames;
  /** Accepts calls of this process. Defined while a socket is open, on a host that has all objects in one process. */
  #callee: LocalTunnel | undefined;

  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    this.#session = ctx.name;
    storageHealth.holdAtMost(environmentNumber(env, 'USAGE_HELD_RECORDS'));
    const parts = createTunnelParts(ctx, env, {
      active: (peer) => this.#onActive(peer),
      gone: () => this.#gone(),
      lost: () => this.#onLost(),
      busy: () => this.#busy(),
      compare: () => ctx.waitUntil(this.#compare()),
    });
    this.#sockets = parts.sockets;
    this.#attempts = parts.attempts;
    this.#registry = parts.registry;
    this.#usage = parts.usage;
    this.#frames = parts.frames;
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

  /**
   * Runs a small request whose response may arrive whole. `open`: an AttemptRequest as JSON, which costs less to pass
   * than its members.
   */
  attempt(open: string, body: Uint8Array): Promise<EncodedCallResult> {
    return new Promise((resolve) => {
      this.#attempts.call(JSON.parse(open) as AttemptRequest, body, (result) => resolve(encodeCallResult(result)));
    });
  }

  /**
   * True if an attempt that arrived as a call is neither answered nor fetched, or if its response is being offloaded.
   */
  holds(requestId: string, attempt: number): boolean {
    return this.#attempts.holds({ requestId, attempt });
  }

  /** For queues: resolves to the number of requests that the engine has finished, when it differs from `seen`. */
  ended(seen: number): Promise<number> {
    return this.#attempts.completions.after(seen);
  }

  /** Reports that the client of an attempt that arrived as a call has disconnected. */
  leave(requestId: string, attempt: number): void {
    this.#attempts.leave({ requestId, attempt });
  }

  /**
   * Returns how long requests at this node wait for their first byte. Used to decide about another node whose engine
   * answers no request.
   */
  firstBytes(): PeerEvidence {
    return this.#attempts.firstBytes();
  }

  /**
   * While the registry object moves to another machine, it returns no nodes to compare with; the next tick asks again.
   */
  async #compare(): Promise<void> {
    const peers = await readReplicaEvidence(this.env, this.#session).catch(() => []);
    this.#attempts.judge(peers);
  }

  /** Returns the newest usage records of this session. */
  usage(limit: number): UsageRecord[] {
    return this.#usage.newest(limit);
  }

  /** Checks the stamp of a request for batch work that this session signed. */
  takeStamp(stamp: BatchStamp): StampVerdict {
    return this.#stamps.take(stamp);
  }

  /** Returns the node's state for operators. Null: no agent is connected. */
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

  /** Returns the engine's loads of the last hour, oldest first. They are lost with this object's memory. */
  loads(): NodeLoad[] {
    return this.#frames.loads(Date.now());
  }

  // --- the agent's side ---------------------------------------------------------------------------------------------

  webSocketMessage(socket: ObjectSocket, message: string | Uint8Array): void {
    const peer = this.#sockets.of(socket);
    if (peer === undefined) return closeSocket(socket, CLOSE_CODES.resync, 'unknown socket');
    try {
      if (peer.attachment.phase === 'challenged') this.#sockets.onHello(peer, message);
      else this.#receive(peer, message);
    } catch (error) {
      this.#sockets.refuse(peer, error);
    }
  }

  /** @throws WireError */
  #receive(peer: AgentSocket, message: string | Uint8Array): void {
    const touched = new Set<OutboundAttempt>();
    peer.receive(message, (frame) => {
      if (peer === this.#sockets.active) this.#onFrame(peer, frame, touched);
    });
    this.#sockets.onReceived(Date.now());
    if (peer === this.#sockets.active) this.#registry.clearSuspicion();
    for (const one of touched) one.onMessageEnd();
    this.#sockets.messageRead(peer);
    if (this.#attempts.due >= RECORDS_PER_STATEMENT) this.#usage.store(steadyNow());
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

  /** Ends the session, so that its agent creates a new one. */
  end(reason: string): void {
    const { active } = this.#sockets;
    if (active !== undefined) this.#sockets.close(active, CLOSE_CODES.over, reason);
  }

  /**
   * Called if the agent was killed and will not reconnect. Its attempts fail immediately, without waiting for a
   * reconnection.
   */
  agentDied(): void {
    this.end('its agent was killed');
    this.#attempts.abandon();
  }

  /** Checks whether the agent answers on its tunnel. `unknown`: there is no tunnel. */
  probe(): Promise<ProbeVerdict> {
    const { active } = this.#sockets;
    return active === undefined ? Promise.resolve('unknown') : this.#frames.probe(active);
  }

  /**
   * Notifies the agent that a caller waits at this circuit. False: there is no tunnel, or the agent does not support
   * circuits.
   */
  call(circuit: string): boolean {
    const { active } = this.#sockets;
    if (active === undefined || (active.attachment.reads ?? 0) < CIRCUIT_FRAME) return false;
    active.link.put({ type: 'circuit', name: circuit });
    return true;
  }

  /**
   * Sends an order; an empty one only queries the state. Resolves to the agent's answer as JSON. Null: no answer, or no
   * tunnel.
   */
  deploy(order: Uint8Array): Promise<string | null> {
    const { active } = this.#sockets;
    return active === undefined ? Promise.resolve(null) : this.#frames.deploy(active, order);
  }

  webSocketClose(socket: ObjectSocket): void {
    const peer = this.#sockets.of(socket);
    if (peer !== undefined) this.#sockets.close(peer, CLOSE_CODES.resync, 'closed');
  }

  webSocketError(socket: ObjectSocket): void {
    this.webSocketClose(socket);
  }

  #gone(): void {
    this.#callee?.close();
    this.#callee = undefined;
    this.#frames.abandon();
    this.#attempts.disconnect();
    this.#registry.closed();
  }

  #onLost(): void {
    const { active } = this.#sockets;
    // The agent reconnects and sends its record again.
    if (active !== undefined) this.#sockets.close(active, CLOSE_CODES.resync, 'the registry cannot be reached');
  }

  // --- while an attempt is open ---

  /** Starts the ticks, because an attempt is open or usage must be stored. */
  #busy(): void {
    this.#sockets.save(false);
    this.#ticker.begin();
  }

  #rest(): void {
    const lost = this.#sockets.active?.link.reclaim() ?? 0;
    if (lost !== 0) console.error(lostCreditText(this.#session, lost));
    this.#sockets.save(true);
  }

  alarm(): Promise<void> {
    return this.#usage.outbox.onAlarm();
  }

  /**
   * Checks whether the agent still sends. If the network fails, no close event arrives, so without this check the
   * streams would wait until their own timeouts.
   */
  #watch(now: number): void {
    const { active } = this.#sockets;
    if (active === undefined || this.#attempts.open === 0) return this.#watchdog.onReceived(now);
    const receivedAt = this.#sockets.heardAt(active);
    if (receivedAt !== this.#receivedAt) this.#watchdog.onReceived(now);
    this.#receivedAt = receivedAt;
    switch (this.#watchdog.look(now)) {
      case 'wait':
        return;
      case 'ask':
        return neverRejects(this.#frames.probe(active));
      case 'gone':
        return this.#sockets.close(active, CLOSE_CODES.silent, 'no sign of life');
    }
  }
}

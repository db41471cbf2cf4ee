import { DurableObject } from 'cloudflare:workers';
import type { Exchange } from '../../shared/asking/exchange.ts';
import { Rounds } from '../../shared/asking/rounds.ts';
import { CLOSE } from '../../shared/wire/close.ts';
import { WireError } from '../../shared/wire/error.ts';
import type { Frame, ProbeVerdict } from '../../shared/wire/frames.ts';
import type { Env } from '../env.ts';
import type { RegistryObject } from '../registry/object.ts';
import { REGISTRY_NAME } from '../registry-name.ts';
import { createIngressUsageTable, storeIngressUsage } from '../usage/ingress.ts';
import { Outbox } from '../usage/outbox.ts';
import { createUsageTable, readUsage, storeUsage, TOGETHER, type UsageRecord, waitingUsage } from '../usage/record.ts';
import { type AttemptRequest, OPEN_HEADER, type PackedResult, pack } from './attempt.ts';
import { Attempts } from './attempts.ts';
import { Deploys } from './deploys.ts';
import { holdingFor } from './holding.ts';
import type { NodeError } from './last-errors.ts';
import { NodeLoadWatch } from './load.ts';
import { Mailbox } from './mailbox.ts';
import { Outlet } from './outlet.ts';
import { Probes } from './probes.ts';
import { type RecordWord, RegistryLine } from './registry-line.ts';
import type { AgentSocket } from './socket.ts';
import { AgentSockets } from './sockets.ts';
import { StreamIds } from './stream-ids.ts';

/** Deadlines are looked at this often while attempts are open; nothing ticks on an idle tunnel. */
const TICK_MS = 250;

/** Agents ping every 15 s; a socket with open streams and no sign of life for this long is dead. */
const SILENCE_MS = 40_000;

/** One node as its tunnel's object knows it now. */
export interface TunnelStanding {
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
 * Owns one node session's socket and its streams. First touched by its agent, so that it lives near it.
 *
 * Survives hibernation: the sockets and their attachments (see SocketAttachment), reserved stream numbers, usage records.
 * Does not: open attempts; the Worker claims them from the next instance.
 */
export class TunnelObject extends DurableObject<Env> {
  readonly #session: string;
  readonly #attempts: Attempts;
  readonly #outbox: Outbox;
  /** Whose node it is: the last socket said so. */
  #provider = '';
  readonly #sockets: AgentSockets;
  #ticking: ReturnType<typeof setInterval> | null = null;
  readonly #rounds = new Rounds(TICK_MS);
  /** An opening was not acknowledged and nothing came since: the registry has been told. */
  #silent = false;
  readonly #registry: RegistryLine;
  readonly #probes = new Probes();
  readonly #load = new NodeLoadWatch();
  readonly #deploys = new Deploys();
  readonly #outlet: Outlet;
  /** While a socket is here, where the Worker is in the same isolate. */
  #mailbox: Mailbox | undefined;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#session = ctx.id.name ?? '';
    this.#sockets = new AgentSockets(holdingFor(ctx, env, this), this.#session, {
      activated: (peer) => this.#onActive(peer),
      replaced: () => this.#attempts.disconnect(),
      idle: () => this.#attempts.open === 0,
    });
    this.#outlet = new Outlet(env, this.#session);
    this.#attempts = new Attempts(this.#session, new StreamIds(ctx.storage.kv), this.#outlet, {
      busy: () => this.#busy(),
      silent: () => this.#onSilent(),
      double: () => this.#onDouble(),
      load: () => this.#load.current,
    });
    this.#registry = new RegistryLine({
      env,
      waitUntil: (work) => ctx.waitUntil(work),
      tell: (registry, word) => this.#tell(registry, word),
      lost: () => this.#onLost(),
    });
    createUsageTable(ctx.storage.sql);
    createIngressUsageTable(ctx.storage.sql);
    this.#outbox = new Outbox(ctx, env, this.#session);
    this.#outbox.wake();
    this.#sockets.wake();
  }

  #onActive(peer: AgentSocket): void {
    this.#provider = peer.attachment.provider;
    this.#attempts.connect(peer.link);
    this.ctx.waitUntil(this.#outlet.connect().catch(() => {}));
    if (this.env.OBJECTS_STAY !== 'on' || this.#mailbox !== undefined) return;
    this.#mailbox = new Mailbox(this.#session);
    void this.#mailbox.serve((letter) =>
      this.#attempts.post(letter.open, letter.body, (result) => letter.answer(result)),
    );
  }

  override async fetch(request: Request): Promise<Response> {
    if (request.headers.get('upgrade') === 'websocket') return this.#sockets.accept(request);
    const open = request.headers.get(OPEN_HEADER);
    if (open === null) return new Response('not an attempt', { status: 400 });
    return this.#attempts.fetch(JSON.parse(open) as AttemptRequest, request);
  }

  /** A small request for an answer that may come whole. `open`: an AttemptRequest as JSON, which costs less to hand over than its members do. */
  attempt(open: string, body: Uint8Array): Promise<PackedResult> {
    return new Promise((resolve) => {
      this.#attempts.call(JSON.parse(open) as AttemptRequest, body, (result) => resolve(pack(result)));
    });
  }

  /** An attempt that came as a letter is neither answered nor fetched. */
  holds(requestId: string, attempt: number): boolean {
    return this.#attempts.holds({ requestId, attempt });
  }

  /** For queues: how many requests the engine was done with, once they are not `seen`. */
  ended(seen: number): Promise<number> {
    return this.#attempts.ends.after(seen);
  }

  /** The client of an attempt that came as a call has left. */
  leave(requestId: string, attempt: number): void {
    this.#attempts.leave({ requestId, attempt });
  }

  /** The newest usage records of this session. */
  usage(limit: number): UsageRecord[] {
    return readUsage(this.ctx.storage.sql, limit);
  }

  /** For who looks at this node. Null: no agent is here. */
  standing(): TunnelStanding | null {
    const { active } = this.#sockets;
    if (active === undefined) return null;
    const { connectedAt, reads = 0 } = active.attachment;
    return {
      reads,
      heardAt: this.#sockets.heardAt(active),
      open: this.#attempts.open,
      connectedAt,
      outbox: waitingUsage(this.ctx.storage.sql),
      errors: this.#attempts.errors.list(),
    };
  }

  // --- the agent's side ---------------------------------------------------------------------------------------------

  override webSocketMessage(socket: WebSocket, message: string | ArrayBuffer): void {
    const peer = this.#sockets.of(socket);
    if (peer === undefined) return socket.close(CLOSE.resync, 'unknown socket');
    let hello: Extract<Frame, { type: 'hello' }> | undefined;
    const touched = new Set<Exchange>();
    const fine = peer.receive(message, (frame) => {
      if (frame.type === 'hello') hello = frame;
      else if (peer === this.#sockets.active) this.#onFrame(peer, frame, touched);
    });
    if (!fine) return this.#gone(peer);
    this.#sockets.heard(Date.now());
    if (this.#silent && peer === this.#sockets.active) this.#onSound();
    for (const exchange of touched) exchange.onMessageEnd();
    this.#sockets.settle(peer);
    if (this.#attempts.due >= TOGETHER) this.#store(Date.now());
    if (hello !== undefined) this.#sockets.greet(peer, hello);
  }

  #onFrame(peer: AgentSocket, frame: Frame, touched: Set<Exchange>): void {
    switch (frame.type) {
      case 'record':
        return this.#registry.record({ peer, sequence: frame.sequence, update: frame.update });
      case 'probe':
        return this.#ask(peer, frame.nonce, frame.session);
      case 'probed':
        return this.#probes.answered(frame.nonce, frame.verdict);
      case 'deployed':
        return this.#deploys.answered(frame.sequence, frame.json);
      case 'usage':
        return this.#storeUsage(peer, frame.sequence, frame.json);
      case 'load':
        return this.#onLoad(frame);
      case 'rate':
        return this.#load.rate(frame.tokensPerSecond);
      case 'prefixes':
        this.#outbox.prefixes.add(frame.of, frame.blocks, Date.now());
        return this.#outbox.schedule();
      case 'report':
      case 'accept':
      case 'head':
      case 'data':
      case 'end':
      case 'reset':
        return this.#attempts.onFrame(peer.link, frame, touched);
      default:
        return; // hello again, or a frame of the gateway's own: nothing to do with it
    }
  }

  /** Said beside answers: Workers get it with theirs, the others with the next snapshot. What is not told is told a second later. */
  #onLoad(frame: Extract<Frame, { type: 'load' }>): void {
    const load = this.#load.heard(frame, this.#attempts.open, Date.now());
    if (load === undefined) return;
    const telling = this.env.REGISTRY.getByName(REGISTRY_NAME).live(this.#session, { load });
    this.ctx.waitUntil(telling.catch(() => {}));
  }

  /** What the agent's own ingress used while no gateway saw it. @throws WireError */
  #storeUsage(peer: AgentSocket, sequence: number, json: string): void {
    if (!storeIngressUsage(this.ctx.storage.sql, json, peer.attachment.provider, Date.now()))
      throw new WireError('bad_frame', 'no usage records');
    this.#outbox.schedule();
    peer.link.put({ type: 'stored', sequence });
  }

  async #tell(registry: DurableObjectStub<RegistryObject>, { peer, sequence, update }: RecordWord): Promise<void> {
    const published = await registry.publish(this.#session, peer.ticket.bytes, update);
    if (published.kind === 'stored') return peer.link.put({ type: 'recorded', sequence });
    const over = published.kind === 'over';
    peer.close(over ? CLOSE.over : CLOSE.protocol, over ? published.reason : `bad record: ${published.reason}`);
    this.#gone(peer);
  }

  /** The session is over: its agent needs a new one. */
  end(reason: string): void {
    const { active } = this.#sockets;
    if (active === undefined) return;
    active.close(CLOSE.over, reason);
    this.#gone(active);
  }

  /** An agent cannot reach another one and asks whether we can. */
  #ask(peer: AgentSocket, nonce: number, session: string): void {
    if (!this.#probes.mayAsk(Date.now())) return peer.link.put({ type: 'probed', nonce, verdict: 'unknown' });
    // Not its object itself: an object is first touched by its own agent, and any name makes one.
    const asking = this.env.REGISTRY.getByName(REGISTRY_NAME).probe(session);
    const asked = asking.catch(() => 'unknown' as const);
    this.ctx.waitUntil(asked.then((verdict) => peer.link.put({ type: 'probed', nonce, verdict })));
  }

  /** Is the agent at the other end there? `unknown` where no tunnel says anything about it. */
  probe(): Promise<ProbeVerdict> {
    const link = this.#sockets.active?.link;
    if (link === undefined) return Promise.resolve('unknown');
    return this.#probes.ask((nonce) => link.put({ type: 'probe', nonce, session: this.#session }));
  }

  /** Sends an order, or an empty one, which asks; gives what the agent answers, JSON. Null: it did not, or there is no tunnel. */
  deploy(order: Uint8Array): Promise<string | null> {
    const link = this.#sockets.active?.link;
    if (link === undefined) return Promise.resolve(null);
    return this.#deploys.send((sequence) => link.put({ type: 'deploy', sequence, order }));
  }

  override webSocketClose(socket: WebSocket): void {
    const peer = this.#sockets.of(socket);
    if (peer !== undefined) this.#gone(peer);
  }

  override webSocketError(socket: WebSocket): void {
    this.webSocketClose(socket);
  }

  #onSilent(): void {
    if (this.#silent) return;
    this.#silent = true;
    const gone = this.#sockets.active === undefined; // a socket that an object lost with its memory is never closed by an event
    this.#registry.say((registry) => (gone ? registry.closed(this.#session) : registry.suspect(this.#session)));
  }

  /** Only counted: nothing depends on it. */
  #onDouble(): void {
    const told = this.env.REGISTRY.getByName(REGISTRY_NAME).double();
    this.ctx.waitUntil(Promise.resolve(told).catch(() => {}));
  }

  /** A suspicion is no verdict: whoever speaks again is served again. */
  #onSound(): void {
    this.#silent = false;
    this.#registry.say((registry) => registry.trust(this.#session));
  }

  #gone(peer: AgentSocket): void {
    if (!this.#sockets.gone(peer)) return;
    this.#silent = false; // not before: a stranger that knocks and goes says nothing about who was suspected
    this.#outlet.rest();
    this.#mailbox?.close();
    this.#mailbox = undefined;
    this.#deploys.abandon();
    this.#attempts.disconnect();
    this.#registry.cut();
    this.#registry.say((registry) => registry.closed(this.#session));
  }

  #onLost(): void {
    const { active } = this.#sockets;
    if (active === undefined) return;
    active.close(CLOSE.resync, 'the registry cannot be reached'); // the agent comes back and says it again
    this.#gone(active);
  }

  // --- while something is open ----------------------------------------------------------------------------------------

  /** Something is open, or to be settled. */
  #busy(): void {
    this.#sockets.save(false);
    this.#ticking ??= setInterval(() => this.#onTick(), TICK_MS);
  }

  #onTick(): void {
    const now = Date.now();
    if (this.#rounds.judges(now)) {
      this.#attempts.tick(now);
      this.#watch(now);
    }
    this.#store(now);
    if (!this.#attempts.idle) return;
    clearInterval(this.#ticking);
    this.#ticking = null;
    this.#rounds.rest();
    this.#sockets.save(true);
  }

  /** At each tick, or when a statement is full: what waits longer outlives the collector's young generation, here and at the agent. */
  #store(now: number): void {
    const { records, streams } = this.#attempts.settle(now);
    if (records.length > 0) {
      storeUsage(this.ctx.storage.sql, records, this.#provider);
      this.#outbox.schedule();
    }
    if (streams.length > 0) this.#sockets.active?.link.put({ type: 'settled', streams });
  }

  override alarm(): Promise<void> {
    return this.#outbox.onAlarm();
  }

  /** A socket may die without an event; open streams must not wait for it for ever. */
  #watch(now: number): void {
    const { active } = this.#sockets;
    if (active === undefined || this.#attempts.open === 0) return;
    if (now - this.#sockets.heardAt(active) < SILENCE_MS) return;
    active.close(CLOSE.silent, 'no sign of life');
    this.#gone(active);
  }
}

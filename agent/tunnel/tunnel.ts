import type { IncomingMessage } from 'node:http';
import type { WebSocket } from 'ws';
import { PendingReplies } from '../../shared/attempts/pending-replies.ts';
import type { DeploymentAnswer } from '../../shared/deployment/order-reply.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { Backoff } from '../../shared/timing/backoff.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { CLOSE_CODES } from '../../shared/wire/close-codes.ts';
import type { Frame, ProbeVerdict } from '../../shared/wire/frames.ts';
import type { Link } from '../../shared/wire/link.ts';
import { lostCreditText } from '../../shared/wire/lost-credit.ts';
import { FRAMES_HEADER, RETAINED_TAIL_BYTES, TAIL_HEADER } from '../../shared/wire/protocol-constants.ts';
import type { EngineAttempt } from '../attempts/engine-attempt.ts';
import { EngineAttempts, type LinkPeer } from '../attempts/engine-attempts.ts';
import { waitClock } from '../wait-clock.ts';
import { dialTunnel } from './dial-tunnel.ts';
import { GatewayConnection } from './gateway-connection.ts';
import { errorMessageOf, isRefusal, isSessionOver } from './gateway-request.ts';
import type { Tunnel, TunnelOptions, TunnelRefusal, UsageSender } from './tunnel-types.ts';

/** Bounds of the timeout of a probe. The answer takes a while, because the gateway has to ask another agent. */
const ANSWER = { leastMs: 2_000, mostMs: 20_000 };

/** Maximum number of open probes. The mesh probes only on suspicion. */
const OPEN_MAX = 64;

/** Probes of other sessions that this agent has sent to one gateway. */
class PendingGatewayProbes extends PendingReplies<ProbeVerdict> {
  constructor() {
    super({ max: OPEN_MAX, wait: ANSWER, late: 'unknown', unknown: 'unknown', patience: waitClock });
  }
}

/** Waits before the next dial. They are short: a gateway that returns is reached within 5 s. */
const BACKOFF = { minMs: 250, maxMs: 3_000 };

/** A socket that lived this long worked, so earlier failures no longer delay the next dial. */
const STABLE_MS = 5_000;

const TICK_MS = 250;

/** Status with which a gateway refuses a ticket if the ticket's issuer is not in its list. */
const FORBIDDEN = 403;

/** Maximum length of an error body that is read for the reason of a refusal. */
const REFUSAL_MAX_BYTES = 16 * 1024;

/** Interval of dials after a refusal. A gateway's list of issuers may change, but rarely does. */
const FORBIDDEN_RETRY_MS = 30_000;

const NO_ORDERS = {
  kind: 'refused',
  code: 'cannot_start',
  message: 'this agent does not accept orders',
} as const satisfies DeploymentAnswer;

export function openTunnel(options: TunnelOptions): Tunnel {
  const tunnel = new GatewayTunnel(options);
  tunnel.open();
  return tunnel;
}

/** The tunnel to one gateway. It dials, and dials again whenever the socket ends. Attempts outlive the sockets. */
class GatewayTunnel implements Tunnel {
  readonly #options: TunnelOptions;
  readonly #requests: EngineAttempts;
  #connection: GatewayConnection | undefined;
  #link: Link | undefined;
  #generation = 0;
  readonly #backoff = new Backoff(BACKOFF, Math.random);
  #readyAt = Number.POSITIVE_INFINITY;
  #retry: NodeJS.Timeout | undefined;
  #ticking: NodeJS.Timeout | undefined;
  #sender: UsageSender | undefined;
  #closed = false;
  #sequence = 0;
  /** Resolves when the gateway has stored the newest record. */
  #unstored: PromiseWithResolvers<void> | undefined;
  #touched = new Set<EngineAttempt>();
  readonly #probes = new PendingGatewayProbes();

  constructor(options: TunnelOptions) {
    this.#options = options;
    const { engine, log, load, seals, siblings, account } = options;
    this.#requests = new EngineAttempts(engine, log, load, seals, siblings, account);
  }

  get connected(): boolean {
    return this.#link !== undefined;
  }

  get inFlight(): number {
    return this.#requests.running;
  }

  get attempts(): EngineAttempts {
    return this.#requests;
  }

  open(): void {
    if (this.#ticking !== undefined || this.#closed) return;
    this.#ticking = setInterval(() => this.#tick(), TICK_MS);
    neverRejects(this.#dial());
  }

  #tick(): void {
    this.#requests.tick(waitClock.now());
    const lost = this.#requests.running === 0 ? (this.#link?.reclaim() ?? 0) : 0;
    if (lost !== 0) this.#options.log(lostCreditText(`gateway ${this.#options.gateway.host}`, lost));
  }

  async #dial(): Promise<void> {
    const { gateway, ticket, proxy } = this.#options;
    try {
      await dialTunnel({ gateway, ticket, proxy, env: process.env }, (socket) => {
        // The tunnel was closed while it dialed. Its timers have stopped, so nothing else would close this socket.
        if (this.#closed) socket.terminate();
        else this.#watch(socket);
      });
    } catch (error) {
      this.#reconnect(errorText(error));
    }
  }

  #watch(socket: WebSocket): void {
    let why = '';
    let refusal: TunnelRefusal | undefined;
    let reads = 0;
    let tail = RETAINED_TAIL_BYTES;
    socket.on('upgrade', ({ headers }) => {
      reads = Number(headers[FRAMES_HEADER]) || 0;
      tail = retainedTail(headers[TAIL_HEADER]);
    });
    socket.on('error', (error) => {
      why ||= error.message;
    });
    const onResponse = async (response: IncomingMessage) => {
      const status = response.statusCode ?? 0;
      why = `status ${status}`;
      const answer = { status, text: await textOf(response) };
      const message = errorMessageOf(answer);
      why = `${status} ${message}`;
      if (isRefusal(answer)) refusal = { status, message };
      if (isSessionOver(answer)) this.#sessionOver(message);
      socket.terminate(); // the close event leads to another dial, unless the refusal is final
    };
    socket.on('unexpected-response', (_request, response) => neverRejects(onResponse(response)));
    this.#connection = new GatewayConnection(socket, this.#options.identity, ++this.#generation, {
      onReady: (link, gateway) => this.#onReady(link, gateway, { reads, tail }),
      onFrame: (link, frame) => this.#onFrame(link, frame),
      onMessageEnd: () => this.#onMessageEnd(),
      onClosed: (code, reason) => {
        if (refusal !== undefined) this.#refused(refusal);
        else this.#onClosed(code, reason || why);
      },
    });
  }

  #refused(refusal: TunnelRefusal): void {
    if (this.#closed) return;
    this.#options.onRefused(refusal);
    if (this.#closed) return; // the owner has closed this tunnel
    if (refusal.status !== FORBIDDEN) return this.#stop();
    this.#retry = setTimeout(() => neverRejects(this.#dial()), FORBIDDEN_RETRY_MS * (0.8 + 0.4 * Math.random()));
  }

  #sessionOver(why: string): void {
    if (this.#closed) return;
    this.#closed = true; // no claim can arrive any more, so unclaimed attempts end at their time limit
    clearTimeout(this.#retry);
    this.#options.onOver?.(why);
  }

  #onReady(link: Link, gateway: string, peer: LinkPeer): void {
    this.#link = link;
    this.#readyAt = performance.now();
    this.#touched = new Set();
    this.#requests.connect(link, peer);
    this.#options.onConnected?.(gateway);
    neverRejects(this.publish());
    this.#sender = { send: (sequence, json) => link.put({ type: 'usage', sequence, json }) };
    this.#options.usage?.connected(this.#sender);
  }

  #onFrame(link: Link, frame: Frame): void {
    if (frame.type === 'recorded') return this.#recorded(frame.sequence);
    if (frame.type === 'probe')
      return link.put({ type: 'probed', nonce: frame.nonce, verdict: this.#alive(frame.session) });
    if (frame.type === 'stored') return this.#stored(frame.sequence);
    if (frame.type === 'circuit') return this.#options.circuit?.(this.#options.gateway, frame.name);
    if (frame.type === 'deploy') return neverRejects(this.#execute(link, frame.sequence, frame.order));
    if (frame.type === 'probed') return this.#probes.answered(frame.nonce, frame.verdict);
    this.#requests.onFrame(link, frame, this.#touched);
  }

  /** Sends the answer before it carries out the order, because the order may end this session. */
  async #execute(link: Link, sequence: number, order: Uint8Array): Promise<void> {
    const { answer, act } = (await this.#options.order?.(order)) ?? { answer: NO_ORDERS };
    link.put({ type: 'deployed', sequence, json: JSON.stringify(answer) });
    act?.();
  }

  #stored(sequence: number): void {
    if (this.#sender !== undefined) this.#options.usage?.stored(this.#sender, sequence);
  }

  #onMessageEnd(): void {
    if (this.#touched.size === 0) return;
    const touched = this.#touched;
    this.#touched = new Set(); // a new set, because a cleared one keeps its table; see TransientMap
    for (const request of touched) this.#requests.start(request);
  }

  #onClosed(code: number, reason: string): void {
    this.#connection = undefined;
    if (this.#link !== undefined) {
      this.#link = undefined;
      this.#probes.abandon();
      this.#requests.disconnect();
      if (this.#sender !== undefined) this.#options.usage?.disconnected(this.#sender);
      this.#sender = undefined;
      this.#options.onDisconnected?.();
    }
    if (this.#closed) return;
    if (performance.now() - this.#readyAt >= STABLE_MS) this.#backoff.reset();
    if (code === CLOSE_CODES.refused) return this.#refused({ status: FORBIDDEN, message: reason });
    if (code === CLOSE_CODES.replaced)
      return this.#refused({ status: 409, message: `another agent uses this session: ${reason}` });
    if (code === CLOSE_CODES.over) return this.#sessionOver(reason);
    this.#reconnect(`${reason || 'closed'} (${code})`, code === CLOSE_CODES.resync || code === CLOSE_CODES.silent);
  }

  #reconnect(why: string, atOnce = false): void {
    if (this.#closed) return;
    const isFirst = this.#backoff.failures === 0;
    const wait = this.#backoff.next();
    const delay = atOnce && isFirst ? Math.random() * 50 : wait;
    this.#options.log(`gateway ${this.#options.gateway.host}: ${why}; trying again in ${Math.round(delay)} ms`);
    this.#retry = setTimeout(() => neverRejects(this.#dial()), delay);
  }

  publish(): Promise<void> {
    this.#unstored ??= Promise.withResolvers();
    const { promise } = this.#unstored;
    this.#link?.put({ type: 'record', sequence: ++this.#sequence, update: this.#options.update() });
    return promise;
  }

  /**
   * Answers a gateway's probe, which the gateway sends if its peers do not reach this agent. The verdict about any
   * other session is `unknown`.
   */
  #alive(session: string): ProbeVerdict {
    return session === this.#options.identity.session ? 'alive' : 'unknown';
  }

  probe(session: string): Promise<ProbeVerdict> {
    const link = this.#link;
    if (link === undefined) return Promise.resolve('unknown');
    return this.#probes.ask((nonce) => link.put({ type: 'probe', nonce, session }));
  }

  #recorded(sequence: number): void {
    if (sequence < this.#sequence) return; // a newer record was already sent
    this.#unstored?.resolve();
    this.#unstored = undefined;
    this.#options.onRecorded?.();
  }

  drain(): Promise<void> {
    return this.#requests.drain();
  }

  giveUp(): void {
    this.#requests.giveUp();
  }

  async close(): Promise<void> {
    const connection = this.#connection;
    this.#stop();
    const closing = this.#requests.close(); // the last frames are sent before the close
    connection?.close(1000, 'the agent is shutting down');
    await closing;
  }

  #stop(): void {
    this.#closed = true;
    clearTimeout(this.#retry);
    clearInterval(this.#ticking);
  }
}

/** Reads TAIL_HEADER. A gateway can only lower the tail, because the memory is the agent's. */
function retainedTail(header: string | string[] | undefined): number {
  return typeof header === 'string' && /^\d{1,6}$/.test(header)
    ? Math.min(RETAINED_TAIL_BYTES, Number(header))
    : RETAINED_TAIL_BYTES;
}

async function textOf(response: IncomingMessage): Promise<string> {
  let text = '';
  try {
    for await (const chunk of response) {
      text += String(chunk);
      if (text.length > REFUSAL_MAX_BYTES) break;
    }
  } catch {
    // the first part of the text is enough
  }
  return text;
}

import { headersToEngine, REQUEST_ID_PATTERN } from '../../../shared/openai/forwarded-headers.ts';
import { sealedHeaders } from '../../../shared/seal/request-binding.ts';
import { inBackground } from '../../../shared/timing/in-background.ts';
import type { OpenFrame } from '../../../shared/wire/frames.ts';
import type { CallerAccount } from '../../attempts/caller-account.ts';
import type { EngineAttempt } from '../../attempts/engine-attempt.ts';
import { EngineAttempts } from '../../attempts/engine-attempts.ts';
import type { LoadCounter } from '../../attempts/load-reports.ts';
import type { EngineTarget } from '../../engine/engine-address.ts';
import type { SealOpener } from '../../seal/seal-opener.ts';
import { waitClock } from '../../wait-clock.ts';
import type { RequestChannel, StreamFrame } from './request-channel.ts';

/**
 * Maximum number of sessions that are served concurrently: enough for a cluster in which every node sends requests to
 * this one.
 */
const PEERS_MAX = 1024;

/**
 * How long unacknowledged reports are kept after a peer's last channel. By the end of this time the peer has long
 * settled the usage by an estimate.
 */
const FORGET_AFTER_MS = 10 * 60_000;

export interface PeerAttemptsOptions {
  /**
   * Returns the engine's address. Undefined while no engine can be reached: attempts are then refused, never queued.
   */
  engine(): EngineTarget | undefined;
  /** True if this node serves requests of a provider's agents (`--serve-to`). Checked for each attempt. */
  serves(provider: string): boolean;
  /** Returns our current session. Its requests to itself are always served. */
  own(): string;
  load?: LoadCounter | undefined;
  /** Opens requests that clients sealed to this node. */
  seals?: SealOpener | undefined;
  /** Returns the account of a provider's agents. */
  accountOf?(provider: string): CallerAccount;
  now(): number;
  log(line: string): void;
}

interface Served {
  readonly requests: EngineAttempts;
  readonly touched: Set<EngineAttempt>;
  /** The channel that carries the peer's streams: the last one on which the peer opened a stream. */
  active: RequestChannel | undefined;
  goneAt: number;
}

/** Attempts of other agents at this node's engine. They outlive a lost channel, as they outlive a lost tunnel. */
export class PeerAttempts {
  readonly #options: PeerAttemptsOptions;
  readonly #peers = new Map<string, Served>();
  #drained: Promise<void>[] | undefined;

  constructor(options: PeerAttemptsOptions) {
    this.#options = options;
  }

  /** Number of other agents' requests on which the engine works. */
  get inFlight(): number {
    let running = 0;
    for (const { requests } of this.#peers.values()) running += requests.running;
    return running;
  }

  isServing(session: string): boolean {
    return (this.#peers.get(session)?.requests.size ?? 0) > 0;
  }

  onChannel(channel: RequestChannel): void {
    const served = this.#peers.get(channel.session);
    if (served !== undefined && served.active === undefined) this.#activate(served, channel);
  }

  #activate(served: Served, channel: RequestChannel): void {
    if (served.active !== undefined) served.requests.disconnect();
    served.active = channel;
    served.touched.clear();
    served.requests.connect(channel.link);
  }

  onChannelClosed(channel: RequestChannel): void {
    const served = this.#peers.get(channel.session);
    if (served === undefined || served.active !== channel) return;
    served.active = undefined;
    served.goneAt = waitClock.now();
    served.touched.clear();
    served.requests.disconnect();
  }

  /** Handles a frame of a stream that the peer opened. @throws WireError */
  onFrame(channel: RequestChannel, frame: StreamFrame): void {
    if (frame.type === 'load') return;
    if (frame.type === 'open') {
      const refusal = this.#refusal(channel);
      if (refusal !== undefined) {
        channel.link.put({ type: 'reset', stream: frame.stream, ...refusal });
        return;
      }
    }
    const served = frame.type === 'open' ? this.#servedFor(channel) : this.#peers.get(channel.session);
    if (served === undefined || served.active !== channel) {
      if (frame.type === 'data') channel.link.consumed(frame.bytes.length);
      return;
    }
    served.requests.onFrame(channel.link, frame.type === 'open' ? cleaned(frame) : frame, served.touched);
  }

  #refusal(channel: RequestChannel): { code: 'refused' | 'overloaded'; message: string } | undefined {
    if (channel.session !== this.#options.own() && !this.#options.serves(channel.provider)) {
      return { code: 'refused', message: `this node does not serve agents of ${channel.provider} (--serve-to)` };
    }
    if (this.#peers.has(channel.session)) return undefined;
    if (this.#drained !== undefined) return { code: 'refused', message: 'draining' };
    if (this.#peers.size >= PEERS_MAX)
      return { code: 'overloaded', message: 'too many agents send requests to this node' };
    return undefined;
  }

  #servedFor(channel: RequestChannel): Served {
    const known = this.#peers.get(channel.session);
    const { engine, log, load, seals, accountOf } = this.#options;
    const served = known ?? {
      requests: new EngineAttempts(engine, log, load, seals, undefined, accountOf?.(channel.provider)),
      touched: new Set(),
      active: undefined,
      goneAt: 0,
    };
    this.#peers.set(channel.session, served);
    if (served.active !== channel) this.#activate(served, channel);
    return served;
  }

  onMessageEnd(channel: RequestChannel): void {
    const served = this.#peers.get(channel.session);
    if (served?.active !== channel) return;
    for (const request of served.touched) served.requests.start(request);
    served.touched.clear();
  }

  tick(now: number): void {
    for (const [session, served] of this.#peers) {
      const { requests, active, goneAt } = served;
      requests.tick(now);
      if (active !== undefined || requests.size > 0) continue;
      if (requests.reports.size > 0 && now - goneAt < FORGET_AFTER_MS) continue;
      this.#peers.delete(session);
      inBackground('requests of other agents', requests.close(), this.#options.log);
    }
  }

  /** Refuses new attempts. Resolves when none runs. */
  async drain(): Promise<void> {
    this.#drained ??= [...this.#peers.values()].map(({ requests }) => requests.drain());
    await Promise.all(this.#drained);
  }

  /** Cancels running attempts. The peers learn of it when the channels are flushed for the last time. */
  async close(): Promise<void> {
    this.#drained ??= [];
    await Promise.all([...this.#peers.values()].map(({ requests }) => requests.close()));
  }
}

/** Keeps only headers that a client may send to an engine. A peer's filter cannot be trusted. */
function cleaned(open: OpenFrame): OpenFrame {
  const given = new Map(open.headers);
  const id = given.get('x-request-id');
  const requestId = id !== undefined && REQUEST_ID_PATTERN.test(id) ? id : undefined;
  const value = (name: string) => given.get(name);
  return { ...open, prefixes: false, headers: [...headersToEngine(value, requestId), ...sealedHeaders(value)] };
}

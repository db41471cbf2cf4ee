import { TokenBucket } from '../../shared/collections/token-bucket.ts';

/** Bytes per second of one circuit and of all circuits of a gateway. Both directions count together. */
const CIRCUIT_BYTES_PER_S = 16 * 1024 * 1024;
const GATEWAY_BYTES_PER_S = 32 * 1024 * 1024;
/**
 * Maximum callers that have not yet proved that they own their ticket's session. Tickets are public, so a peer may
 * present the tickets of other sessions. Above the maximum, the circuit of the oldest such caller is closed: an honest
 * caller sends its proof with its next message and is not affected.
 */
const UNPROVEN_MAX = 512;
const CIRCUITS_MAX = 256;
const CIRCUITS_PER_SESSION_MAX = 16;
/** Maximum calls per second of one caller. Each call sends a frame to its callee. */
const CALLS_PER_S = 1;
const CALLS_BURST = 32;
/**
 * Maximum calls per second to one callee, from all callers together: half of the rate at which a callee closes its
 * tunnel (`FRAME_LIMITS.circuit`).
 */
const RINGS_PER_S = 10;
const RINGS_BURST = 100;
const CALLERS_MAX = 4_096;

/** Bounds on the circuits of a gateway, which it carries in addition to its own requests. */
export class CircuitLimits<Circuit> {
  /** Open circuits with their two sessions. */
  readonly #open = new Map<Circuit, readonly string[]>();
  /** Circuits with an unproven caller, oldest first, at most UNPROVEN_MAX. */
  readonly #unproven = new Set<Circuit>();
  /** Rate limits of callers and callees by session, oldest first, at most CALLERS_MAX each. */
  readonly #calls = new Map<string, TokenBucket>();
  readonly #rings = new Map<string, TokenBucket>();
  readonly #bytes: TokenBucket;

  /** @param now milliseconds of a monotonic clock, as in all methods */
  constructor(now: number) {
    this.#bytes = new TokenBucket(GATEWAY_BYTES_PER_S, GATEWAY_BYTES_PER_S, now);
  }

  /** Registers a caller without a proof. Returns the circuit that must end, because there are too many. */
  addUnproven(circuit: Circuit): Circuit | undefined {
    this.#unproven.add(circuit);
    const [oldest] = this.#unproven;
    return this.#unproven.size > UNPROVEN_MAX ? oldest : undefined;
  }

  removeUnproven(circuit: Circuit): void {
    this.#unproven.delete(circuit);
  }

  /** Returns false if there are too many circuits, or too many calls of the caller or to the callee. */
  open(circuit: Circuit, caller: string, callee: string, now: number): boolean {
    const ends = [caller, callee];
    const of = (session: string) => [...this.#open.values()].filter((one) => one.includes(session)).length;
    if (this.#open.size >= CIRCUITS_MAX || ends.some((session) => of(session) >= CIRCUITS_PER_SESSION_MAX))
      return false;
    if (!bucketOf(this.#calls, caller, () => new TokenBucket(CALLS_PER_S, CALLS_BURST, now)).take(1, now)) return false;
    if (!bucketOf(this.#rings, callee, () => new TokenBucket(RINGS_PER_S, RINGS_BURST, now)).take(1, now)) return false;
    this.#open.set(circuit, ends);
    return true;
  }

  close(circuit: Circuit): void {
    this.#open.delete(circuit);
    this.#unproven.delete(circuit);
  }

  /** Creates the rate limit of one circuit. */
  newPace(now: number): TokenBucket {
    return new TokenBucket(CIRCUIT_BYTES_PER_S, CIRCUIT_BYTES_PER_S, now);
  }

  /** Returns how long a circuit must wait before it may send `bytes` more; 0: they are counted, and may be sent. */
  waitMs(pace: TokenBucket, bytes: number, now: number): number {
    const waits = [pace, this.#bytes].map((one) => (one.take(0, now) ? one.waitMs(bytes) : 0));
    const waitMs = Math.max(...waits);
    if (waitMs > 0) return waitMs;
    pace.take(bytes, now);
    this.#bytes.take(bytes, now);
    return 0;
  }
}

function bucketOf(buckets: Map<string, TokenBucket>, session: string, make: () => TokenBucket): TokenBucket {
  const bucket = buckets.get(session) ?? make();
  buckets.delete(session);
  buckets.set(session, bucket);
  const oldest = buckets.keys().next().value;
  if (buckets.size > CALLERS_MAX && oldest !== undefined) buckets.delete(oldest);
  return bucket;
}

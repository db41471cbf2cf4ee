/** A body that stands still, or nearly so, is given up: what was read of it is room that others wait for, and its connection a place. */
import { isSlower } from '../collections/timer.ts';
import { ApiError } from '../openai/errors.ts';
import type { Clock } from './host.ts';

/** Where no setting says otherwise, at gateways and ingresses. */
export const BODY_STALL_MS = 30_000;

/** The rate of Apache's RequestReadTimeout, 500 bytes a second: half of what the worst line that people send bodies on brings. */
const LEAST_BYTES_PER_MS = 0.5;

type PaceClock = Pick<Clock, 'steadyNow' | 'after'>;

/**
 * How much longer a body's reader waits for it: `stallMs` at most, a second less for each second of waiting, a second more for each 500
 * bytes. So a body fails whose pieces come at a lower rate for `stallMs`. Time in which no piece is asked for does not count.
 */
export class BodyPace {
  readonly #stallMs: number;
  readonly #clock: PaceClock;
  #leftMs: number;

  constructor(stallMs: number, clock: PaceClock) {
    this.#stallMs = stallMs;
    this.#clock = clock;
    this.#leftMs = stallMs;
  }

  /**
   * The piece that the body's reader was asked for. `look` is called every `lookMs` meanwhile, and may throw.
   * @throws ApiError 408 if it comes too slowly, 400 if the body breaks off
   */
  async next<T extends Uint8Array | undefined>(piece: Promise<T>, lookMs = this.#stallMs, look = ignore): Promise<T> {
    const clock = this.#clock;
    const from = clock.steadyNow();
    const until = from + this.#leftMs;
    for (let now = from; await isSlower(piece, Math.min(until - now, lookMs), clock.after); ) {
      now = clock.steadyNow();
      if (now >= until) throw tooSlow(this.#stallMs);
      look();
    }
    const came = await piece.catch(broken);
    const earnedMs = (came?.length ?? 0) / LEAST_BYTES_PER_MS;
    this.#leftMs = Math.min(this.#stallMs, until - clock.steadyNow() + earnedMs);
    return came;
  }
}

function tooSlow(stallMs: number): ApiError {
  const message = `Less than ${1_000 * LEAST_BYTES_PER_MS} bytes a second came of the request body for ${stallMs / 1_000} s.`;
  return new ApiError('request_timeout', message);
}

/** Malformed chunks, or fewer bytes than announced (RFC 9112 §6.3, §7.1). */
function broken(cause: unknown): never {
  throw new ApiError('invalid_request', 'The request body breaks off, or its chunks are malformed.', { cause });
}

function ignore(): void {}

import { ApiError } from '../../shared/openai/errors.ts';

/** Bytes that the bodies of one ingress may keep for retries, above the first MiB of each. */
export const BODY_BUDGET_BYTES = 48 * 1024 * 1024;

/** One request each: bounds the first MiBs, and what stalled readers hold of the channels' windows. */
export const CONNECTIONS_MAX = 1024;

export class Budget {
  readonly #max: number;
  #used = 0;

  constructor(max = BODY_BUDGET_BYTES) {
    this.#max = max;
  }

  get used(): number {
    return this.#used;
  }

  share(): Share {
    return new Share((more) => this.#take(more));
  }

  #take(bytes: number): void {
    if (bytes > 0 && this.#used + bytes > this.#max) {
      throw new ApiError('server_is_overloaded', 'Too many large requests at this moment; try again shortly.');
    }
    this.#used += bytes;
  }
}

/** One body's part of a budget. */
export class Share {
  readonly #take: (bytes: number) => void;
  #held = 0;
  #released = false;

  constructor(take: (bytes: number) => void) {
    this.#take = take;
  }

  /** Holds `bytes` in all. @throws ApiError 503 */
  grow(bytes: number): void {
    if (!(bytes > this.#held) || this.#released) return;
    this.#take(bytes - this.#held);
    this.#held = bytes;
  }

  release(): void {
    this.#take(-this.#held);
    this.#held = 0;
    this.#released = true;
  }
}

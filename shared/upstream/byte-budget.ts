import { ApiError } from '../openai/errors.ts';

/** Bytes that may be kept at once, by all who share it. */
export class ByteBudget {
  readonly #maxBytes: number;
  #used = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** `maxBytes`: of all shares, as this one is to see it. */
  share(maxBytes = this.#maxBytes): BudgetShare {
    return new BudgetShare(this, maxBytes);
  }

  /** False where `maxBytes` in all would be passed; then nothing is taken. */
  take(bytes: number, maxBytes: number): boolean {
    if (!this.hasRoom(bytes, maxBytes)) return false;
    this.#used += bytes;
    return true;
  }

  hasRoom(bytes: number, maxBytes: number): boolean {
    return this.#used + bytes <= maxBytes;
  }

  giveBack(bytes: number): void {
    this.#used -= bytes;
  }
}

/** What one body or stream has of a budget. */
export class BudgetShare {
  readonly #budget: ByteBudget;
  readonly #maxBytes: number;
  #held = 0;
  #released = false;

  constructor(budget: ByteBudget, maxBytes: number) {
    this.#budget = budget;
    this.#maxBytes = maxBytes;
  }

  /** Holds `bytes` in all; false where there is no room. */
  grow(bytes: number): boolean {
    if (!(bytes > this.#held) || this.#released) return true;
    if (!this.#budget.take(bytes - this.#held, this.#maxBytes)) return false;
    this.#held = bytes;
    return true;
  }

  /** As `grow`, for a request that cannot be without. @throws ApiError 503 */
  claim(bytes: number): void {
    if (!this.grow(bytes)) throw tooMany();
  }

  /** Takes nothing: who announces much and sends little must not keep others out. @throws ApiError 503 where there is no room */
  requireRoom(bytes: number): void {
    if (!this.#budget.hasRoom(bytes - this.#held, this.#maxBytes)) throw tooMany();
  }

  /** For good: late bytes are not held. */
  release(): void {
    this.#budget.giveBack(this.#held);
    this.#held = 0;
    this.#released = true;
  }
}

function tooMany(): ApiError {
  return new ApiError('server_is_overloaded', 'Too many large requests at this moment; try again shortly.');
}

import { ApiError } from '../openai/api-errors.ts';

/** Limits the bytes that all shares of this budget may buffer together. */
export class ByteBudget {
  readonly #maxBytes: number;
  #used = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Creates a share. `maxBytes`: the share may not grow if the total of all shares would exceed this. */
  share(maxBytes = this.#maxBytes): BudgetShare {
    return new BudgetShare(this, maxBytes);
  }

  /** Returns false, and takes nothing, if the total would exceed `maxBytes`. */
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

/** The part of a budget that one body or one stream uses. */
export class BudgetShare {
  readonly #budget: ByteBudget;
  readonly #maxBytes: number;
  #held = 0;
  #released = false;

  constructor(budget: ByteBudget, maxBytes: number) {
    this.#budget = budget;
    this.#maxBytes = maxBytes;
  }

  /** Raises the share to `bytes`. Returns false if the budget does not have the additional bytes. */
  grow(bytes: number): boolean {
    if (!(bytes > this.#held) || this.#released) return true;
    if (!this.#budget.take(bytes - this.#held, this.#maxBytes)) return false;
    this.#held = bytes;
    return true;
  }

  /**
   * Like `grow`, for a request that cannot continue without the memory. @throws ApiError 503 instead of returning false
   */
  claim(bytes: number): void {
    if (!this.grow(bytes)) throw tooMany();
  }

  /**
   * Checks without reserving anything, because a client that declares a large body and sends little must not block
   * others. @throws ApiError 503 if the share cannot grow to `bytes`
   */
  requireRoom(bytes: number): void {
    if (!this.#budget.hasRoom(bytes - this.#held, this.#maxBytes)) throw tooMany();
  }

  /** Releases the share permanently. Bytes that arrive later are not counted. */
  release(): void {
    this.#budget.giveBack(this.#held);
    this.#held = 0;
    this.#released = true;
  }
}

function tooMany(): ApiError {
  return new ApiError('server_is_overloaded', 'Too many large requests are running; try again shortly.');
}

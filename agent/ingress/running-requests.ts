import { ApiError } from '../../shared/openai/api-errors.ts';

/** Counts the running requests of the ingress's clients. */
export class RunningRequests {
  #count = 0;
  #draining = false;
  #onNone: (() => void)[] = [];

  get count(): number {
    return this.#count;
  }

  /**
   * Counts a request. Call the returned function once, when the request has ended.
   * @throws ApiError 503 while draining
   */
  begin(): () => void {
    if (this.#draining) {
      const headers = { connection: 'close' };
      throw new ApiError('no_capacity', 'The agent of this endpoint is shutting down; use another endpoint.', {
        headers,
      });
    }
    this.#count++;
    return () => {
      this.#count--;
      if (this.#count === 0) for (const done of this.#onNone.splice(0)) done();
    };
  }

  /** Refuses new requests. Resolves when none is running. */
  drain(): Promise<void> {
    this.#draining = true;
    if (this.#count === 0) return Promise.resolve();
    return new Promise((resolve) => this.#onNone.push(resolve));
  }
}

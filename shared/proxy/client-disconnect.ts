/** The recorded status of a request after its client disconnected. It is never sent. nginx logs the same status. */
export const LEFT_STATUS = 499;
export const LEFT_ERROR = 'client_left';

/** The members of AbortSignal that are used here. */
interface Signal {
  readonly aborted: boolean;
  addEventListener(type: 'abort', call: () => void): void;
  removeEventListener(type: 'abort', call: () => void): void;
}

/**
 * Informs all parts of one request that its client has disconnected. They share one listener on the runtime's signal,
 * which is removed when the request is over. If the listener stayed, it would keep the request's memory in use until
 * workerd collects its whole heap, and every small collection before that would copy this memory. If the host has no
 * signal, it calls `leave` when it notices the disconnect.
 */
export class ClientDisconnect {
  readonly #signal: Signal | undefined;
  #disconnected = false;
  readonly #calls: (() => void)[] = [];

  constructor(signal?: Signal) {
    this.#signal = signal;
    signal?.addEventListener('abort', this.leave);
  }

  get disconnected(): boolean {
    return this.#disconnected || this.#signal?.aborted === true;
  }

  /** Calls `call` when the client disconnects; immediately if it already has. */
  on(call: () => void): void {
    if (this.disconnected) call();
    else this.#calls.push(call);
  }

  /** Call when the request is over: drops all callbacks. Idempotent. */
  over(): void {
    this.#signal?.removeEventListener('abort', this.leave);
    this.#calls.length = 0;
  }

  readonly leave = (): void => {
    this.#disconnected = true;
    for (const call of [...this.#calls]) call();
  };
}

/** The recorded status of a request if the client disconnected. No client sees it. nginx logs the same status. */
export const LEFT_STATUS = 499;
export const LEFT_ERROR = 'client_left';

/** The part of AbortSignal that is needed here. */
interface Signal {
  readonly aborted: boolean;
  addEventListener(type: 'abort', call: () => void): void;
  removeEventListener(type: 'abort', call: () => void): void;
}

/**
 * Informs all parts of one request that its client disconnected. They share one listener on the runtime's signal, which
 * is removed when the request is over. A listener that stays would hold the request's memory until workerd collects its
 * whole heap, and every small collection before that would copy it. Without a signal the host calls `leave` when it
 * sees the disconnect.
 */
export class ClientDisconnect {
  readonly #signal: Signal | undefined;
  #disconnected = false;
  readonly #calls: (() => void)[] = [];

  constructor(signal?: Signal) {
    this.#signal = signal;
    signal?.addEventListener('abort', this.leave);
  }

  get left(): boolean {
    return this.#disconnected || this.#signal?.aborted === true;
  }

  /** Calls `call` when the client disconnects; immediately if it already has. */
  on(call: () => void): void {
    if (this.left) call();
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

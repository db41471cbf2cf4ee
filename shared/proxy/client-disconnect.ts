/** How a request is on record whose client left. Nobody is there to see it; logs elsewhere call it so. */
export const LEFT_STATUS = 499;
export const LEFT_ERROR = 'client_left';

/** The part of AbortSignal that is needed here. */
interface Signal {
  readonly aborted: boolean;
  addEventListener(type: 'abort', call: () => void): void;
  removeEventListener(type: 'abort', call: () => void): void;
}

/**
 * A client's disconnect, as all parts of one request hear of it. They share one listener at the runtime, which goes when the request is
 * over: one that stays holds what the request made until workerd collects its whole heap, and each small collection before that
 * copies it. Without a signal the host calls `leave` when it sees the disconnect.
 */
export class ClientDisconnect {
  readonly #signal: Signal | undefined;
  #left = false;
  readonly #calls: (() => void)[] = [];

  constructor(signal?: Signal) {
    this.#signal = signal;
    signal?.addEventListener('abort', this.leave);
  }

  /** The client has left. */
  get left(): boolean {
    return this.#left || this.#signal?.aborted === true;
  }

  /** `call` is called when the client leaves; at once where it has left. */
  on(call: () => void): void {
    if (this.left) call();
    else this.#calls.push(call);
  }

  /** Nobody wants to know it any more. Idempotent. */
  over(): void {
    this.#signal?.removeEventListener('abort', this.leave);
    this.#calls.length = 0;
  }

  readonly leave = (): void => {
    this.#left = true;
    for (const call of [...this.#calls]) call();
  };
}

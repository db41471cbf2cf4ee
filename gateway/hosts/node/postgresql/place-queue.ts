import { startTimer } from '../../../../node/timers.ts';

interface PlaceQueueOptions {
  places: number;
  /** If no work has ended well for this time, all callers that wait are refused. */
  stallMs: number;
  /** True if an error shows that the server works. */
  isProgress(error: unknown): boolean;
}

/** Callers that wait. Each is a request of a client or a task of the gateway, so more means that something is broken. */
const WAITING_MAX = 10_000;

/**
 * Lets `places` callers work at a time, in the order in which they asked. A caller waits as long as others make
 * progress, because a slow server must not fail the last of many. If nothing makes progress, waiting would not help.
 */
export class PlaceQueue {
  readonly #options: PlaceQueueOptions;
  #free: number;
  #waiting: { begin(): void; refuse(error: Error): void }[] = [];
  #stopTimer: (() => void) | undefined;

  constructor(options: PlaceQueueOptions) {
    this.#options = options;
    this.#free = options.places;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** @throws Error if no place came free in time; and errors of `work` */
  async withPlace<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await this.#wait();
    try {
      const result = await work();
      this.#restartTimer();
      return result;
    } catch (error) {
      if (this.#options.isProgress(error)) this.#restartTimer();
      throw error;
    } finally {
      this.#leave();
    }
  }

  #wait(): Promise<void> {
    if (this.#waiting.length >= WAITING_MAX) throw new Error(`more than ${WAITING_MAX} callers wait`);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#waiting.push({ begin: resolve, refuse: reject });
    if (this.#stopTimer === undefined) this.#startTimer();
    return promise;
  }

  /** Passes the place to the next caller. */
  #leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free++;
    else next.begin();
    if (this.#waiting.length > 0) return;
    this.#stopTimer?.();
    this.#stopTimer = undefined;
  }

  #restartTimer(): void {
    if (this.#stopTimer === undefined) return;
    this.#stopTimer();
    this.#startTimer();
  }

  #startTimer(): void {
    this.#stopTimer = startTimer(this.#options.stallMs, () => {
      const refused = this.#waiting;
      this.#waiting = [];
      this.#stopTimer = undefined;
      for (const { refuse } of refused) refuse(new Error(`nothing ended for ${this.#options.stallMs} ms`));
    });
  }
}

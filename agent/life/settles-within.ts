/** Waits for a promise for a limited time, and leaves no timer running. */
import { waitClock } from '../wait-clock.ts';

/**
 * Resolves when `promise` settles or after `ms`, whichever is first. True if the promise was first. A rejection of the
 * promise passes through.
 */
export async function settlesWithin(ms: number, promise: Promise<unknown>): Promise<boolean> {
  let stop = () => {};
  const late = new Promise<boolean>((resolve) => {
    stop = waitClock.after(ms, () => resolve(false));
  });
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    stop();
  }
}

/** A promise that is settled once, from outside. */
export class Deferred<T> {
  readonly promise: Promise<T>;
  #settle: (value: T) => void = () => {};
  #settled = false;

  constructor() {
    this.promise = new Promise((resolve) => {
      this.#settle = resolve;
    });
  }

  get settled(): boolean {
    return this.#settled;
  }

  /** Later values are ignored, because the first reason to end counts. */
  settle(value: T): void {
    this.#settled = true;
    this.#settle(value);
  }
}

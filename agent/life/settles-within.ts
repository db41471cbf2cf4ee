/** Short waits that always end and leave no timer running. */
import { waitClock } from '../wait-clock.ts';

/**
 * Resolves with the promise or after `ms`, whichever is first; true if the promise was first. Rejections pass through.
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

/** A promise that is settled from outside, once. */
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

  /** Later values are dropped, because the first reason to end counts. */
  settle(value: T): void {
    this.#settled = true;
    this.#settle(value);
  }
}

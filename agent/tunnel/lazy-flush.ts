/** How long an acknowledgment waits so that it can share a message with a response. The gateway allows a second. */
const LAZY_MS = 5;

/**
 * Decides when frames that may wait are sent. A timer wakes the process even if it was cleared, because Node does not
 * stop libuv's timer. So while other messages take the frames along in time, no timer is set. If a message then comes
 * later than that, the owner's next tick sends the frames, and a timer sends the next ones.
 */
export class LazyFlush {
  #timer: NodeJS.Timeout | undefined;
  /** When the oldest frame that waits was written. */
  #since: number | undefined;
  /** True if the last frames that waited were sent with others in time. */
  #isPrompt = false;

  later(flush: () => void): void {
    this.#since ??= performance.now();
    if (this.#isPrompt) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      flush();
    }, LAZY_MS);
  }

  /** Call when a message is sent: it contains the frames that waited. */
  sent(): void {
    if (this.#since === undefined) return;
    this.#isPrompt = performance.now() - this.#since < LAZY_MS;
    this.#since = undefined;
  }
}

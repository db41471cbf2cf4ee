/**
 * The stages of a request, after the paper (§5.1): ingress (key and body), lookup (candidates), queue (wait for a free
 * node), forward (to the agent and back), engine (until the engine's response head), return (the rest of the time until
 * the head arrived here), other. A Worker's clock does not advance while the Worker computes, so a stage without I/O is
 * 0 there.
 */
export class StageTimer {
  readonly #start: number;
  #ingressEnd: number;
  #lookupEnd: number;

  constructor(now: number) {
    this.#start = now;
    this.#ingressEnd = now;
    this.#lookupEnd = now;
  }

  ingressDone(now: number): void {
    this.#ingressEnd = now;
    this.#lookupEnd = now;
  }

  lookupDone(now: number): void {
    this.#lookupEnd = now;
  }

  /**
   * The `server-timing` header (https://www.w3.org/TR/server-timing/), with durations in milliseconds.
   * @param queuedMs total waiting time of this request
   */
  header(head: { forwardMs: number; engineMs: number }, queuedMs: number, now: number): string {
    const ingress = this.#ingressEnd - this.#start;
    const lookup = this.#lookupEnd - this.#ingressEnd;
    const before = this.#lookupEnd - this.#start;
    const back = Math.max(0, now - this.#lookupEnd - queuedMs - head.forwardMs - head.engineMs);
    const other = Math.max(0, now - this.#start - before - queuedMs - head.forwardMs - head.engineMs - back);
    const stages = {
      ingress,
      lookup,
      queue: queuedMs,
      forward: head.forwardMs,
      engine: head.engineMs,
      return: back,
      other,
    };
    return Object.entries(stages)
      .map(([stage, ms]) => `${stage};dur=${rounded(ms)}`)
      .join(', ');
  }
}

/** Rounds to hundredths of a millisecond. */
function rounded(ms: number): number {
  return Math.round(ms * 100) / 100;
}

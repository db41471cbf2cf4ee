/**
 * The stages of a request, after the paper (§5.1): ingress (who and what), lookup (which node), forward (to the agent's
 * acknowledgement), engine (to its head), return (from there to here), other. A Worker's clock stands still while it computes,
 * so what takes no I/O shows as 0 there.
 */
export class Timing {
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

  /** `server-timing` (https://www.w3.org/TR/server-timing/), durations in milliseconds. */
  header(head: { forwardMs: number; engineMs: number }, now: number): string {
    const ingress = this.#ingressEnd - this.#start;
    const lookup = this.#lookupEnd - this.#ingressEnd;
    const back = Math.max(0, now - this.#lookupEnd - head.forwardMs - head.engineMs);
    const other = Math.max(0, now - this.#start - ingress - lookup - head.forwardMs - head.engineMs - back);
    return `ingress;dur=${rounded(ingress)}, lookup;dur=${rounded(lookup)}, forward;dur=${rounded(head.forwardMs)}, engine;dur=${rounded(head.engineMs)}, return;dur=${rounded(back)}, other;dur=${rounded(other)}`;
  }
}

/** Hundredths of a millisecond. */
function rounded(ms: number): number {
  return Math.round(ms * 100) / 100;
}

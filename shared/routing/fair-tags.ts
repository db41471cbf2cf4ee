/**
 * Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): each flow has a tag that grows by cost / weight whenever it is
 * served, and the smallest tag is served next. A flow that was away begins at the tag of the flow that is served now, so no flow
 * saves up turns.
 */
export class FairTags {
  #now = 0;
  readonly #tags = new Map<string, number>();

  of(flow: string): number {
    return Math.max(this.#now, this.#tags.get(flow) ?? 0);
  }

  /** `flow` has a turn that costs `cost`, in parts of its weight. */
  serve(flow: string, cost: number): void {
    this.#now = this.of(flow);
    this.#tags.set(flow, this.#now + cost);
    this.#sweep();
  }

  /** The turn came to nothing. */
  refund(flow: string, cost: number): void {
    const tag = this.#tags.get(flow);
    if (tag !== undefined) this.#tags.set(flow, tag - cost);
  }

  /** Forgets flows that would be told the present time anyway. Those that are left were served since: no more than it has served. */
  #sweep(): void {
    if (this.#tags.size < SWEEP_AT) return;
    for (const [flow, tag] of this.#tags) if (tag <= this.#now) this.#tags.delete(flow);
    const oldest = this.#tags.keys().next().value;
    if (this.#tags.size > TAGS_MAX && oldest !== undefined) this.#tags.delete(oldest);
  }
}

const SWEEP_AT = 64;
const TAGS_MAX = 4_096;

/**
 * Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996). Each flow has a tag that grows by cost / weight whenever
 * the flow is served, and the flow with the smallest tag is served next. When a flow returns, its tag is at least that
 * of the flow served last, so an absent flow does not save up turns.
 */
export class FairTags {
  #now = 0;
  readonly #tags = new Map<string, number>();

  of(flow: string): number {
    return Math.max(this.#now, this.#tags.get(flow) ?? 0);
  }

  /**
   * Adds the cost of a turn to the tag of `flow`. @param cost cost of the turn, already divided by the flow's weight
   */
  serve(flow: string, cost: number): void {
    this.#now = this.of(flow);
    this.#tags.set(flow, this.#now + cost);
    this.#sweep();
  }

  /** Subtracts the cost again, because the turn found no free node. */
  refund(flow: string, cost: number): void {
    const tag = this.#tags.get(flow);
    if (tag !== undefined) this.#tags.set(flow, tag - cost);
  }

  /**
   * Forgets flows with a tag that is not above the current one, because they would return with the current tag anyway.
   * At most TAGS_MAX flows remain.
   */
  #sweep(): void {
    if (this.#tags.size < SWEEP_AT) return;
    for (const [flow, tag] of this.#tags) if (tag <= this.#now) this.#tags.delete(flow);
    const oldest = this.#tags.keys().next().value;
    if (this.#tags.size > TAGS_MAX && oldest !== undefined) this.#tags.delete(oldest);
  }
}

const SWEEP_AT = 64;
const TAGS_MAX = 4_096;

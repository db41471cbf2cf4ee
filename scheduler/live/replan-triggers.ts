/** The result of one look at the network, from which `Triggers` decides whether the plan still applies. */
export interface LookSummary {
  /** Idle sessions that could serve a model. */
  idle: readonly string[];
  /** Requested models that have no replica, neither running nor starting. */
  without: readonly string[];
  /** Requests/s by model. */
  rates: Readonly<Record<string, number>>;
}

/** A load differs from the plan if it is above or below the planned load by more than this share. */
const OFF_SHARE = 0.2;
/** A load that differs for this time needs a new plan. A shorter difference counts as a burst. */
const OFF_MS = 10 * 60_000;
/** Differences below this many requests/s are noise. */
const NOISE_RATE = 0.01;

/** Remembers since when the load has differed from the plan. Times are in ms. */
export class Triggers {
  readonly #offSince = new Map<string, number>();
  #idleKnown = new Set<string>();
  #withoutKnown = new Set<string>();

  /** Returns the reasons for a new plan, each once; empty if the plan still applies. */
  look(seen: LookSummary, plannedFor: Readonly<Record<string, number>>, now: number): string[] {
    const reasons = [
      ...news(seen.idle, this.#idleKnown, 'a new idle node'),
      ...news(seen.without, this.#withoutKnown, 'requested, but without a replica'),
    ];
    this.#idleKnown = new Set(seen.idle);
    this.#withoutKnown = new Set(seen.without);
    for (const model of new Set([...Object.keys(seen.rates), ...Object.keys(plannedFor)])) {
      const [rate, planned] = [seen.rates[model] ?? 0, plannedFor[model] ?? 0];
      const off = Math.abs(rate - planned) > OFF_SHARE * planned && Math.abs(rate - planned) > NOISE_RATE;
      if (!off) this.#offSince.delete(model);
      else if (!this.#offSince.has(model)) this.#offSince.set(model, now);
      if (off && now - (this.#offSince.get(model) ?? now) >= OFF_MS) {
        reasons.push(
          `${model}: ${rate.toPrecision(3)} requests/s for 10 minutes, planned for ${planned.toPrecision(3)}`,
        );
        this.#offSince.delete(model);
      }
    }
    return reasons;
  }
}

const news = (now: readonly string[], known: ReadonlySet<string>, what: string): string[] =>
  now.filter((one) => !known.has(one)).map((one) => `${one}: ${what}`);

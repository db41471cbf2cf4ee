/** What a round saw, for deciding whether the plan still stands. */
interface RoundObservation {
  /** Idle sessions that could serve. */
  idle: readonly string[];
  /** Models that are asked for and have no replica, running or on its way. */
  without: readonly string[];
  /** Requests/s by model. */
  rates: Readonly<Record<string, number>>;
}

/** Load that is off by so much of what was planned for … */
const OFF_SHARE = 0.2;
/** … for so long is a new load, not a burst. */
const OFF_MS = 10 * 60_000;
/** Below this many requests/s a share of it is noise. */
const NOISE_RATE = 0.01;

/** Remembers how long the load has been off. Time is handed in, in ms. */
export class Triggers {
  #offSince = new Map<string, number>();
  #idleKnown = new Set<string>();
  #withoutKnown = new Set<string>();

  /** Why to plan again; nothing if the plan stands. Each reason is given once, not every round. */
  look(seen: RoundObservation, plannedFor: Readonly<Record<string, number>>, now: number): string[] {
    const reasons = [
      ...this.#news(seen.idle, this.#idleKnown, 'a new idle node'),
      ...this.#news(seen.without, this.#withoutKnown, 'wanted, without a replica'),
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

  #news(now: readonly string[], known: ReadonlySet<string>, what: string): string[] {
    return now.filter((one) => !known.has(one)).map((one) => `${one}: ${what}`);
  }
}

/** Sums of checks, from which availability is computed. A minute without a check is unknown, not an outage. */

export const HOUR_MS = 60 * 60_000;
export const DAY_MS = 24 * HOUR_MS;
/** Days of the page. */
export const DAYS = 90;

/** Checks of one model in one hour. */
export interface HourlyChecks {
  /** Hours since the epoch. */
  hour: number;
  up: number;
  down: number;
}

export interface Availability {
  /** Share of successful checks in the last 24 hours, 7 days and 90 days, 0 to 1; null: there was no check. */
  day: number | null;
  week: number | null;
  quarter: number | null;
  /** By day (UTC), the oldest first. */
  days: { day: string; availability: number | null }[];
}

/** Reads each hour once, because a report has up to 50 models with 2,184 hours. */
export function availabilityOf(checks: Iterable<HourlyChecks>, now: number): Availability {
  const byDay = new Map<number, Counts>();
  const spans = [DAY_MS, 7 * DAY_MS, DAYS * DAY_MS].map((ms) => ({ from: now - ms, up: 0, all: 0 }));
  for (const { hour, up, down } of checks) {
    const at = hour * HOUR_MS;
    if (at >= now + HOUR_MS) continue;
    const date = Math.floor(at / DAY_MS);
    const known = byDay.get(date) ?? { up: 0, all: 0 };
    byDay.set(date, known);
    for (const counts of [known, ...spans.filter(({ from }) => at >= from)]) {
      counts.up += up;
      counts.all += up + down;
    }
  }
  const [day = null, week = null, quarter = null] = spans.map(share);
  const first = Math.floor(now / DAY_MS) - DAYS + 1;
  const days = Array.from({ length: DAYS }, (_, n) => {
    const counts = byDay.get(first + n);
    const name = new Date((first + n) * DAY_MS).toISOString().slice(0, 10);
    return { day: name, availability: counts === undefined ? null : share(counts) };
  });
  return { day, week, quarter, days };
}

interface Counts {
  up: number;
  all: number;
}

function share({ up, all }: Counts): number | null {
  // Rounded down: 100 % means that no check failed.
  return all === 0 ? null : Math.floor((up / all) * 10_000) / 10_000;
}

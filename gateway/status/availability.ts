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

export function availabilityOf(checks: readonly HourlyChecks[], now: number): Availability {
  const within = (from: number, to = now + HOUR_MS) =>
    share(checks.filter(({ hour }) => hour * HOUR_MS >= from && hour * HOUR_MS < to));
  const today = Math.floor(now / DAY_MS);
  const days = Array.from({ length: DAYS }, (_, n) => {
    const begin = (today - DAYS + 1 + n) * DAY_MS;
    return { day: new Date(begin).toISOString().slice(0, 10), availability: within(begin, begin + DAY_MS) };
  });
  const last = (ms: number) => within(now - ms);
  return { day: last(DAY_MS), week: last(7 * DAY_MS), quarter: last(DAYS * DAY_MS), days };
}

function share(checks: readonly HourlyChecks[]): number | null {
  const [up, all] = checks.reduce(([u, a], { up: one, down }) => [u + one, a + one + down], [0, 0]);
  // Rounded down: 100 % means that no check failed.
  return all === 0 ? null : Math.floor((up / all) * 10_000) / 10_000;
}

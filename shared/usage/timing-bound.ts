/** How long one attempt can have taken at most, by its asker's proof. A node's report above it is cut to it. */
import type { ReportedTimings } from '../wire/usage.ts';
import type { Course } from './usage-record.ts';

type Timings = Pick<Course, 'status' | 'firstMs' | 'totalMs'>;

const UNKNOWN: Timings = { status: null, firstMs: null, totalMs: null };

/**
 * @param ageMs since the attempt was opened, by the asker's clock. Below 0 where that clock was set back: then no time is believed.
 * @returns `over`: the node reported a longer time than that
 */
export function cutToAge(reported: ReportedTimings | undefined, ageMs: number): { timings: Timings; over: boolean } {
  if (reported === undefined) return { timings: UNKNOWN, over: false };
  const { status, firstMs, totalMs } = reported;
  if (ageMs < 0) return { timings: { ...UNKNOWN, status }, over: false };
  const timings = { status, firstMs: Math.min(firstMs, ageMs), totalMs: Math.min(totalMs, ageMs) };
  return { timings, over: totalMs > ageMs };
}

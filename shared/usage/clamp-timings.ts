/**
 * Bounds the times of an attempt that a node reports. The caller's proof of the attempt's opening shows how long the
 * attempt can have lasted; a longer time is reduced to this.
 */
import type { ReportedTimings } from '../wire/reported-usage.ts';
import type { AttemptCourse } from './usage-record.ts';

type Timings = Pick<AttemptCourse, 'status' | 'firstMs' | 'totalMs'>;

const UNKNOWN: Timings = { status: null, firstMs: null, totalMs: null };

/**
 * @param ageMs milliseconds since the attempt was opened, by the caller's clock. Negative if that clock was set back;
 * then no reported time is used.
 * @returns the times; `over` is true if the node reported a longer time
 */
export function clampToAge(reported: ReportedTimings | undefined, ageMs: number): { timings: Timings; over: boolean } {
  if (reported === undefined) return { timings: UNKNOWN, over: false };
  const { status, firstMs, totalMs } = reported;
  if (ageMs < 0) return { timings: { ...UNKNOWN, status }, over: false };
  const timings = { status, firstMs: Math.min(firstMs, ageMs), totalMs: Math.min(totalMs, ageMs) };
  return { timings, over: totalMs > ageMs };
}

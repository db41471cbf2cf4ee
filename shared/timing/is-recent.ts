/**
 * True if less than `ms` passed between two readings of a clock that may be set. If the clock was set back, `ms` counts
 * as passed. A plain `now - at < ms` would then be true until the clock catches up, perhaps for ten minutes.
 */
export function isRecent(ms: number, at: number, now: number): boolean {
  const passed = now - at;
  return passed >= 0 && passed < ms;
}

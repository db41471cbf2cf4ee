/**
 * True if less than `ms` passed between two readings of a clock that may be set. If the clock was set back, all of `ms`
 * counts as passed: a plain `now - at < ms` would hold until the clock catches up, perhaps for ten minutes.
 */
export function isRecent(ms: number, at: number, now: number): boolean {
  const passed = now - at;
  return passed >= 0 && passed < ms;
}

/**
 * True if less than `ms` passed between two readings of a clock that may be set. A clock that was set back counts as if
 * all of it had passed: a plain `now - at < ms` would hold for as long as the clock was set back, perhaps ten minutes.
 */
export function isRecent(ms: number, at: number, now: number): boolean {
  const passed = now - at;
  return passed >= 0 && passed < ms;
}

/** Returns seconds since the epoch, for dates in signed statements. */
export function nowS(): number {
  return Math.floor(Date.now() / 1000);
}

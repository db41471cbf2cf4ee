/** JSON has no NaN and infinities; they become null. */
export function prettyJson(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) => (typeof one === 'number' && !Number.isFinite(one) ? null : one), 2);
}

/** NaN and infinities have no JSON; a missing number is null there. */
export function prettyJson(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) => (typeof one === 'number' && !Number.isFinite(one) ? null : one), 2);
}

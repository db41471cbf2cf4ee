/** Numbers for people: with a unit, three digits and no powers of ten. */

/** Formats a number: `15,480`; below 100, with enough decimals for three digits. */
export function countText(value: number): string {
  if (!Number.isFinite(value)) return '-';
  const digits = Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  const [whole = '', decimals] = value.toFixed(digits).split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ',');
  return decimals === undefined ? grouped : `${grouped}.${decimals}`;
}

/** Formats a rate as requests per second; below one per minute, as requests per hour. */
export function perSecond(rate: number): string {
  if (!Number.isFinite(rate)) return '-';
  if (rate > 0 && rate < 1 / 60) return `${countText(rate * 3600)} requests/h`;
  return `${countText(rate)} requests/s`;
}

/** Formats a duration: `21 ms`, `3.25 s`, `12 min`. */
export function durationText(seconds: number | undefined): string {
  if (seconds === undefined || !Number.isFinite(seconds)) return '-';
  if (seconds < 1) return `${countText(Math.round(seconds * 1e4) / 10)} ms`;
  if (seconds < 600) return `${countText(seconds)} s`;
  return `${countText(seconds / 60)} min`;
}

export const energy = (joules: number): string => `${countText(joules / 3.6e6)} kWh`;

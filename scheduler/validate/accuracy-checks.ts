/** One line of the accuracy table: the allowed and the found error. */
interface Check {
  name: string;
  /** Largest allowed error, as a share; undefined: the error is only shown. */
  limit: number | undefined;
  /** Largest error found. */
  found: number;
  /** Describes how the error was measured. */
  note: string;
}

/** A part of `npm run validate`: rows to print, and the checks that follow from them. */
export interface ReportSection {
  title: string;
  header: string[];
  rows: (string | number)[][];
  checks: Check[];
}

export const median = (values: readonly number[]): number => {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const high = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? high : (high + (sorted[middle - 1] ?? Number.NaN)) / 2;
};

export const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

export const worst = (values: readonly number[]): number => Math.max(...values.map(Math.abs));

/**
 * Returns the half of the data to which a measured point belongs: 0, used for fitting, or 1, used for reporting. The
 * half is a hash of the point's index, so it is the same on every machine.
 */
export function half(index: number): 0 | 1 {
  let x = (index + 1) | 0;
  x = Math.imul(x ^ (x >>> 16), 0x45d9f3b);
  x = Math.imul(x ^ (x >>> 16), 0x45d9f3b);
  return ((x ^ (x >>> 16)) & 1) as 0 | 1;
}

import { type Allowed, type Row, row } from '../rows.ts';
import { MISSES } from './misses.ts';

/** Tables and figures in the paper's order. Claims begin with one of these. */
const ORDER = [
  'Table 1',
  'Figure 2',
  'Figure 3',
  'Figure 4',
  'Figure 5',
  'Figure 8',
  'Figure 9',
  'Figure 10',
  'Figure 11',
  'Figure 12',
  'Theorem 1',
  'Theorem 2',
  'Theorem 3',
  'Beyond the paper',
] as const;

/**
 * A row of the paper. `name` begins with its table or figure; a miss is allowed only if `misses.ts` lists the name with
 * a range and a reason. `detail`: what the name leaves out, such as the topology and the interval.
 */
export function claim(name: string, detail: string, unit: string, ours: number, allowed: Allowed): Row {
  if (!ORDER.some((label) => name.startsWith(label))) throw new Error(`${name} begins with no table or figure`);
  const miss = MISSES[name];
  const withMiss = miss === undefined || 'reported' in allowed ? allowed : { ...allowed, miss };
  return row(detail === '' ? name : `${name} (${detail})`, unit, ours, withMiss as Allowed);
}

export function inPaperOrder(rows: readonly Row[]): Row[] {
  const place = ({ claim: text }: Row) => ORDER.findIndex((label) => new RegExp(`^${label}(?!\\d)`).test(text));
  return [...rows].sort((a, b) => place(a) - place(b));
}

import type { Colour, Paint } from './paint.ts';

/** The result of one check of this machine. */
export interface Finding {
  what: string;
  /** `odd`: it works, but probably not as intended. */
  verdict: 'good' | 'odd' | 'bad';
  found: string;
  /** What to do about it; absent if nothing needs to be done. */
  fix?: string;
}

export const good = (what: string, found: string): Finding => ({ what, verdict: 'good', found });
export const odd = (what: string, found: string, fix: string): Finding => ({ what, verdict: 'odd', found, fix });
export const bad = (what: string, found: string, fix: string): Finding => ({ what, verdict: 'bad', found, fix });

const MARKS = {
  good: ['green', 'ok '],
  odd: ['yellow', 'odd'],
  bad: ['red', 'BAD'],
} as const satisfies Record<Finding['verdict'], readonly [Colour, string]>;

/** For people: one line, and another for the fix. */
export function described({ what, verdict, found, fix }: Finding, paint: Paint): string {
  const [colour, mark] = MARKS[verdict];
  return `${paint(colour, mark)}  ${what}: ${found}${fix === undefined ? '' : `\n       → ${fix}`}`;
}

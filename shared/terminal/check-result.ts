import type { Color, Paint } from './paint.ts';

/** The result of one check of this machine. */
export interface CheckResult {
  what: string;
  /** `odd`: it works, but probably not as intended. */
  verdict: 'good' | 'odd' | 'bad';
  found: string;
  /** How to fix it; absent if no action is needed. */
  fix?: string;
}

export const checkPassed = (what: string, found: string): CheckResult => ({ what, verdict: 'good', found });
export const checkWarning = (what: string, found: string, fix: string): CheckResult => ({
  what,
  verdict: 'odd',
  found,
  fix,
});
export const checkFailed = (what: string, found: string, fix: string): CheckResult => ({
  what,
  verdict: 'bad',
  found,
  fix,
});

const MARKS = {
  good: ['green', 'ok '],
  odd: ['yellow', 'odd'],
  bad: ['red', 'BAD'],
} as const satisfies Record<CheckResult['verdict'], readonly [Color, string]>;

/** Formats the result for a terminal, in one line; if there is a fix, it follows in a second line. */
export function checkText({ what, verdict, found, fix }: CheckResult, paint: Paint): string {
  const [color, mark] = MARKS[verdict];
  return `${paint(color, mark)}  ${what}: ${found}${fix === undefined ? '' : `\n       → ${fix}`}`;
}

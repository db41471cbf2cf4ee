import type { Row } from '../rows.ts';

/** What a reader should make of a claim of the paper. */
type Verdict = 'reproduced' | 'better' | 'refuted' | 'not comparable';

/** One part of the report: rows that must hold, what the paper claims of it, and pictures. */
export interface Section {
  title: string;
  rows: Row[];
  verdicts: { claim: string; verdict: Verdict; reason: string }[];
  /** Tables for people, under the rows. */
  text?: string;
  /** File name without its ending, and the SVG. */
  pictures?: [name: string, svg: string][];
}

export interface RunOptions {
  /** A minute instead of many: fewer spans, models and mixes. */
  quick: boolean;
}

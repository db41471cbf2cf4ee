/** A requirement and its measurement, ours and the original's side by side. */
import { markdown, show } from '../report.ts';

export interface Required {
  figure: string;
  /** Absent if it could not be measured; `note` then has the reason. */
  ours?: number | undefined;
  original?: number | undefined;
  unit: string;
  /** The value that the requirement limits. `ratio`: ours divided by the original's. `ours`: our figure. */
  of: 'ratio' | 'ours';
  /**
   * Median of the rounds' ratios, not the ratio of the medians: other work on the machine affects both sides of a
   * round.
   */
  ratio?: number | undefined;
  most?: number;
  least?: number;
  /** The requirement in words, if it is not a number. */
  required?: string;
  note?: string;
  /** What limits the figure. Shown if the requirement is missed. */
  cause?: string | undefined;
}

export function isMet({ of, ours, ratio, most, least }: Required): boolean | undefined {
  const value = of === 'ratio' ? ratio : ours;
  if (value === undefined || (most === undefined && least === undefined)) return undefined;
  return (most === undefined || value <= most) && (least === undefined || value >= least);
}

function wordsOf(row: Required): string {
  const { of, unit, most, least, required } = row;
  const limit = most === undefined ? (least === undefined ? (required ?? '') : `≥ ${least}`) : `≤ ${most}`;
  const met = isMet(row);
  return `${limit}${of === 'ours' && limit !== '' && required === undefined ? ` ${unit}` : ''}${met === undefined ? '' : met ? ' ✓' : ' ✗'}`;
}

/** A line for each cause of missed requirements, with their figures. */
export function causesOf(rows: readonly Required[]): string[] {
  const missed = Map.groupBy(
    rows.filter((row) => isMet(row) === false),
    ({ cause = 'not known' }) => cause,
  );
  return [...missed].map(([cause, of]) => {
    return `- ✗ **${of.map(({ figure }) => figure).join('; ')}**: ${cause}`;
  });
}

/** Markdown: `figure | ours | original | ratio | required`. */
export function requiredTable(rows: readonly Required[]): string {
  const cell = (value: number | undefined, unit: string) => (value === undefined ? '' : `${show(value)} ${unit}`);
  const lines = rows.map((row) => [
    row.figure,
    row.ours === undefined ? (row.note ?? '') : cell(row.ours, row.unit),
    cell(row.original, row.unit),
    show(row.ratio),
    wordsOf(row),
  ]);
  return markdown([['figure', 'ours', 'original', 'ratio', 'required'], ...lines]);
}

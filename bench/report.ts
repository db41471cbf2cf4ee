/** What a section of the benchmark gives back, and how it is shown. */

export interface Row {
  /** What was measured. */
  what: string;
  /** Under which conditions, e.g. `16 requests/s`. */
  at: string;
  direct?: number | undefined;
  gateway?: number | undefined;
  /** The number the requirement is about: a difference, a ratio, or the gateway's own. */
  value: number;
  unit: string;
  /** The requirement in words, and whether `value` meets it. Absent: reported only. */
  required?: string | undefined;
  met?: boolean | undefined;
  /** Least and most of the repeats. */
  spread?: [number, number] | undefined;
  note?: string | undefined;
}

interface Limit {
  most?: number;
  least?: number;
}

/** Judges `value`; the words are those of the table. */
export function judged(row: Omit<Row, 'required' | 'met'>, limit: Limit): Row {
  const { most, least } = limit;
  const met = (most === undefined || row.value <= most) && (least === undefined || row.value >= least);
  return { ...row, required: most === undefined ? `≥ ${least} ${row.unit}` : `≤ ${most} ${row.unit}`, met };
}

function show(value: number | undefined): string {
  if (value === undefined || Number.isNaN(value)) return '';
  const size = Math.abs(value);
  return value.toLocaleString('en', { maximumFractionDigits: size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3 });
}

export function table(rows: readonly Row[]): string {
  const lines = rows.map((row) => [
    row.what,
    row.at,
    show(row.direct),
    show(row.gateway),
    `${show(row.value)} ${row.unit}${row.spread ? ` (${show(row.spread[0])} … ${show(row.spread[1])})` : ''}`,
    row.required === undefined ? '' : `${row.required} ${row.met === true ? '✓' : '✗'}`,
  ]);
  const head = ['', 'at', 'direct', 'gateway', 'measured (least … most of the repeats)', 'required'];
  return [head, head.map(() => '---'), ...lines].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

/** The result of a section of the benchmark, and how it is shown. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { aboutMachine, type Machine } from './machine.ts';

export interface Row {
  /** The section of the benchmark, and when it ran (RFC 3339); set when the row is stored. */
  section?: string;
  taken?: string;
  /** The measured quantity. */
  what: string;
  /** The conditions, e.g. `16 requests/s`. */
  at: string;
  direct?: number | undefined;
  gateway?: number | undefined;
  /** The number that is compared with the requirement: a difference, a ratio, or the gateway's figure. */
  value: number;
  unit: string;
  /** The requirement in words, and whether `value` meets it. Absent if there is no requirement. */
  required?: string | undefined;
  met?: boolean | undefined;
  /** Minimum and maximum of the repeats. */
  spread?: [number, number] | undefined;
  note?: string | undefined;
}

interface Limit {
  most?: number;
  least?: number;
}

/** Compares `value` with the limit; the words are those of the table. */
export function judged(row: Omit<Row, 'required' | 'met'>, limit: Limit): Row {
  const { most, least } = limit;
  const met = (most === undefined || row.value <= most) && (least === undefined || row.value >= least);
  return { ...row, required: most === undefined ? `≥ ${least} ${row.unit}` : `≤ ${most} ${row.unit}`, met };
}

export function show(value: number | undefined): string {
  if (value === undefined || Number.isNaN(value)) return '';
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return value.toLocaleString('en', { maximumFractionDigits: digits, signDisplay: 'negative' });
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
  return markdown([head, ...lines]);
}

/** Prints the rows and the machine, and writes both to a file. Returns the exit code: 1 if a requirement is missed. */
export function publish(machine: Machine, rows: readonly Row[], file: string): number {
  console.log(`\n${aboutMachine(machine)}\n\n${table(rows)}`);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${JSON.stringify({ machine, rows }, undefined, 1)}\n`);
  return rows.some(({ met }) => met === false) ? 1 : 0;
}

/** The first row is the head. Columns are as wide as their widest cell, so that the table is readable as text, too. */
export function markdown([head = [], ...rows]: readonly (readonly string[])[]): string {
  const widths = head.map((name, at) => Math.max(3, ...[name, ...rows.map((row) => row[at] ?? '')].map(lengthOf)));
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell, at) => cell + ' '.repeat((widths[at] ?? 0) - lengthOf(cell))).join(' | ')} |`;
  return [line(head), line(widths.map((width) => '-'.repeat(width))), ...rows.map(line)].join('\n');
}

/** Length of a text in characters, not in UTF-16 units. */
function lengthOf(text: string): number {
  return [...text].length;
}

/** The table of docs/engines.md, from the stored results of each engine's last run. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { ROOT } from '../../support/where.ts';

const RESULTS = join(ROOT, 'test/real/engines/results.json');
const PAGE = join(ROOT, 'docs/engines.md');
const TABLE = /(<!-- engines -->\n)[\s\S]*?(<!-- \/engines -->)/;

const resultSchema = z.object({
  engine: z.string(),
  version: z.string(),
  /** Day of the run, such as `2026-11-27`. */
  day: z.string(),
  /** By case: `ok`, the engine's own status, `absent`, or `fault`. */
  cases: z.record(z.string(), z.union([z.enum(['ok', 'absent', 'fault']), z.number().int()])),
});
export type Result = z.infer<typeof resultSchema>;

export function storedResults(): Result[] {
  return z.array(resultSchema).parse(JSON.parse(readFileSync(RESULTS, 'utf8')));
}

/** Replaces the cases of that engine that ran, and writes the table. Cases of another version are dropped. */
export function storeResult(result: Result, order: readonly string[]): void {
  const stored = storedResults();
  const others = stored.filter(({ engine }) => engine !== result.engine);
  const before = stored.find(({ engine, version }) => engine === result.engine && version === result.version);
  const merged = { ...result, cases: { ...before?.cases, ...result.cases } };
  const results = [...others, merged].sort((a, b) => order.indexOf(a.engine) - order.indexOf(b.engine));
  writeFileSync(RESULTS, `${JSON.stringify(results, undefined, 2)}\n`);
  const page = readFileSync(PAGE, 'utf8');
  writeFileSync(
    PAGE,
    page.replace(TABLE, (_all, start, end) => `${start}\n${engineTable(results)}\n${end}`),
  );
}

export function engineTable(results: readonly Result[]): string {
  const names = [...new Set(results.flatMap(({ cases }) => Object.keys(cases)))];
  const rows = [
    ['', ...results.map(({ engine, version }) => `${engine} ${version}`)],
    ...names.map((name) => [name, ...results.map(({ cases }) => cell(cases[name]))]),
  ];
  const widths = (rows[0] ?? []).map((_, column) => Math.max(3, ...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]) => `| ${row.map((text, n) => text.padEnd(widths[n] ?? 0)).join(' | ')} |\n`;
  const [head = [], ...body] = rows;
  return [line(head), line(widths.map((width) => '-'.repeat(width))), ...body.map(line)].join('');
}

function cell(result: Result['cases'][string] | undefined): string {
  switch (result) {
    case undefined:
      return '';
    case 'ok':
      return '✓';
    case 'absent':
      return '–';
    case 'fault':
      return '✗';
    default:
      return `its ${result}`;
  }
}

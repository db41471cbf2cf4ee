/**
 * `npm run bench:tables`: writes the tables of README.md and bench/README.md from bench/results/, between their marks. `--check` writes nothing
 * and fails where one is not what the results say: a figure on a page is one that a run gave.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ROOT } from '../test/support/where.ts';
import { aboutMachine, type Machine } from './machine.ts';
import { tableOf as peersTable, type Result } from './peers/result.ts';
import { markdown, type Row, show, table } from './report.ts';

interface Latest {
  machine: Machine;
  rows: Row[];
}

interface Peers {
  machine: Machine;
  results: Result[];
}

/** A line of the README's table: some rows of the whole one, in one. Of a row's own `at` the beginning is enough. */
interface Line {
  what: string;
  at: string;
  rows: readonly (readonly [what: string, at: string])[];
}

const RATES = ['1 requests/s', '4 requests/s', '16 requests/s'];
const STREAMS = ['1 stream ', '256 streams '];
const each = (what: string, ats: readonly string[]) => ats.map((at) => [what, at] as const);

const SUMMARY: readonly Line[] = [
  {
    what: 'added to the median unary',
    at: '1, 4, 16 requests/s',
    rows: each('added to the median unary', RATES),
  },
  {
    what: 'added to the median TTFT',
    at: '1, 4, 16 requests/s',
    rows: each('added to the median TTFT', RATES),
  },
  { what: 'requests per second', at: '64 connections', rows: each('requests per second', ['64 connections']) },
  {
    what: 'token throughput',
    at: '64 unpaced streams',
    rows: [['token throughput, of the engine’s own', '64 unpaced streams']],
  },
  {
    what: 'added time per output token, median',
    at: '1, 256 streams at 50 tokens/s',
    rows: each('added time per output token, median of the streams', STREAMS),
  },
  {
    what: 'p99 of a token’s way',
    at: '1, 256 streams at 50 tokens/s',
    rows: each('p99 of a token’s way (not a difference)', STREAMS),
  },
  {
    what: 'tunnel bytes of a request beyond its body, out',
    at: 'mean of 1,000',
    rows: [['tunnel bytes out, beyond the body', 'mean']],
  },
  { what: '… and back', at: 'mean of 1,000', rows: [['tunnel bytes back, beyond the body', 'mean']] },
  {
    what: 'added TTFT over the round trip',
    at: 'NAT, 20 ms each way',
    rows: [['added TTFT over the round trip', 'NAT']],
  },
  {
    what: '200 MiB from the engine, to the engine',
    at: 'NAT, 20 ms each way',
    rows: [
      ['200 MiB from the engine', 'NAT'],
      ['200 MiB to the engine', 'NAT'],
    ],
  },
];

function rowOf(all: readonly Row[], what: string, at: string): Row {
  const rows = all.filter((row) => row.what === what && row.at.startsWith(at));
  const row = rows.find((one) => one.at === at) ?? rows[0];
  if (row === undefined) throw new Error(`no run has measured "${what}" at "${at}"`);
  return row;
}

function lineOf({ what, at, rows: wanted }: Line, all: readonly Row[]): string[] {
  const rows = wanted.map(([name, where]) => rowOf(all, name, where));
  const [{ unit, required = '' } = { unit: '' }] = rows;
  const marks = rows.map(({ met }) => (met === undefined ? '' : met ? '✓' : '✗'));
  const mark = new Set(marks).size === 1 ? marks[0] : marks.join(', ');
  return [what, at, `${rows.map(({ value }) => show(value)).join(', ')} ${unit}`, `${required} ${mark}`.trim()];
}

function summary(all: readonly Row[]): string {
  return markdown([['', 'at', 'measured', 'required'], ...SUMMARY.map((line) => lineOf(line, all))]);
}

function conditionsOf(machine: Machine, rows: readonly Row[] = []): string {
  const others = [...new Set(rows.map(({ taken }) => taken))].filter(
    (taken) => taken !== undefined && taken !== machine.date,
  );
  const also = others.length === 0 ? '' : `; some sections were run at ${others.join(' and ')}`;
  return `${aboutMachine(machine)}. Begun at ${machine.date}${also}.`;
}

function read<T>(name: string): T {
  return JSON.parse(readFileSync(join(ROOT, 'bench/results', name), 'utf8'));
}

const latest = read<Latest>('latest.json');
const peers = read<Peers>('peers.json');
const TABLES: Record<string, string> = {
  summary: summary(latest.rows),
  latest: `${conditionsOf(latest.machine, latest.rows)}\n\n${table(latest.rows)}`,
  peers: `${conditionsOf(peers.machine)}\n\n${peersTable(peers.results)}`,
};

/** What stands between `<!-- table NAME -->` and `<!-- end -->`. */
function filled(page: string): string {
  return page.replaceAll(
    /(<!-- table (\w+) -->\n)[\s\S]*?(<!-- end -->)/g,
    (whole, begin: string, name: string, end: string) => {
      const made = TABLES[name];
      return made === undefined ? whole : `${begin}\n${made}\n\n${end}`;
    },
  );
}

const { values } = parseArgs({ options: { check: { type: 'boolean', default: false } } });
for (const name of ['README.md', 'bench/README.md', 'docs/comparison.md']) {
  const path = join(ROOT, name);
  const page = readFileSync(path, 'utf8');
  const made = filled(page);
  if (made === page) continue;
  if (values.check) {
    console.error(`${name} has not what bench/results/ says: npm run bench:tables`);
    process.exitCode = 1;
  } else writeFileSync(path, made);
}

/**
 * `npm run bench:tables`: writes the tables of bench/README.md and docs/comparison.md from bench/results/, between
 * their marks. `--check` writes nothing and fails if a table differs from the results, so that every figure on a page
 * comes from a run.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ROOT } from '../test/support/where.ts';
import { aboutMachine, type Machine } from './machine.ts';
import { tableOf as peersTable, type Result } from './peers/result.ts';
import { type Row, table } from './report.ts';
import { causesOf, type Required, requiredTable } from './required/row.ts';
import { type WakeUpRow, wakeUpTable } from './required/wake-up-table.ts';

interface Latest {
  machine: Machine;
  rows: Row[];
}

interface Peers {
  machine: Machine;
  results: Result[];
  beside?: Required[];
}

interface WakeUpRun {
  machine: Machine;
  rows: WakeUpRow[];
}

interface RequiredRun {
  machine: Machine;
  rows: Required[];
  notes: string[];
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

/** Makes the table of requirements from the results in the repository, or a note that there are none. */
function required(): string {
  if (!existsSync(join(ROOT, 'bench/results/required.json'))) return 'Not taken yet: `npm run bench:required`.';
  const { machine, rows, notes } = read<RequiredRun>('required.json');
  return [conditionsOf(machine), requiredTable(rows), causesOf(rows).join('\n'), ...notes].join('\n\n');
}

function wakeUps(): string {
  if (!existsSync(join(ROOT, 'bench/results/wake-ups.json')))
    return 'Not taken yet: `npm run bench:required -- --wake-ups`.';
  const { machine, rows } = read<WakeUpRun>('wake-ups.json');
  return `${conditionsOf(machine)}\n\n${wakeUpTable(rows)}`;
}

function workers(): string {
  if (!existsSync(join(ROOT, 'bench/results/workers.json'))) return 'Not taken yet: `npm run bench:workers`.';
  const { machine, rows } = read<Latest>('workers.json');
  return `${conditionsOf(machine)}\n\n${table(rows)}`;
}

function besideOriginal({ beside = [] }: Peers): string {
  return beside.length === 0 ? '' : `\n\n${requiredTable(beside)}`;
}

const TABLES: Record<string, string> = {
  required: required(),
  wakeUps: wakeUps(),
  workers: workers(),
  latest: `${conditionsOf(latest.machine, latest.rows)}\n\n${table(latest.rows)}`,
  peers: `${conditionsOf(peers.machine)}\n\n${peersTable(peers.results)}${besideOriginal(peers)}`,
};

/** The text between `<!-- table NAME -->` and `<!-- end -->`. */
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
for (const name of ['bench/README.md', 'docs/comparison.md']) {
  const path = join(ROOT, name);
  const page = readFileSync(path, 'utf8');
  const made = filled(page);
  if (made === page) continue;
  if (values.check) {
    console.error(`${name} differs from bench/results/: npm run bench:tables`);
    process.exitCode = 1;
  } else writeFileSync(path, made);
}

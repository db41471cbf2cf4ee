/**
 * `npm run bench`: the cost of the path through gateway, tunnel and agent, compared with the direct path in the same
 * run. Method: bench/README.md. `--quick` only tests that it runs; its figures are too few to be quoted. `--only
 * latency,throughput,…` runs some sections, and with `--keep` the other sections stay in the file.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { endAll } from '../test/support/processes.ts';
import { ROOT } from '../test/support/where.ts';
import { type BenchCluster, type Memory, openBenchCluster, resident, warm } from './bench-cluster.ts';
import { type Counter, startCounter } from './counter.ts';
import { aboutMachine, watchMachine } from './machine.ts';
import { wrkVersion } from './programs.ts';
import { type Row, table } from './report.ts';
import { run } from './run.ts';
import { fairness } from './sections/fairness.ts';
import { latency } from './sections/latency.ts';
import { throughput } from './sections/throughput.ts';
import { tokens } from './sections/tokens.ts';
import { tunnel } from './sections/tunnel.ts';
import { wide } from './sections/wide.ts';

const SECTIONS = ['latency', 'throughput', 'tokens', 'tunnel', 'fairness', 'wide'] as const;
type Section = (typeof SECTIONS)[number];

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string' },
    keep: { type: 'boolean', default: false },
    seed: { type: 'string', default: '1' },
    out: { type: 'string' },
  },
});
const quick = values.quick;
const seed = Number(values.seed);
const repeats = quick ? 1 : 5;
const latencyPlan = {
  seed,
  repeats: quick ? 1 : 3,
  requests: (perSecond: number) => (quick ? 5 : 15) * Math.max(2, perSecond),
};

function memoryRow(at: string, memory: Memory): Row[] {
  return (['gateway', 'agent'] as const).map((name) => ({
    what: `resident memory, ${name}`,
    at,
    value: memory[name],
    unit: 'MiB',
  }));
}

async function section(name: Section, cluster: BenchCluster, counter: Counter): Promise<Row[] | string> {
  switch (name) {
    case 'latency':
      return latency(cluster, latencyPlan);
    case 'throughput': {
      const { rows, loaded } = await throughput(cluster, {
        repeats: quick ? 1 : 3,
        seconds: quick ? 2 : 8,
        connections: [1, 16, 64, 256],
      });
      return [...rows, ...memoryRow('peak under wrk', loaded)];
    }
    case 'tokens': {
      const { rows, loaded } = await tokens(cluster, {
        seed,
        repeats,
        tokens: quick ? 500 : 4_000,
        paced: quick ? 100 : 400,
      });
      return [...rows, ...memoryRow('peak under 64 and 256 streams', loaded)];
    }
    case 'tunnel':
      return tunnel(cluster, counter, quick ? 100 : 1_000);
    case 'fairness':
    case 'wide':
      return 'runs last, in a network of its own';
  }
}

function of(section: Section | 'idle', rows: Row[]): Row[] {
  return rows.map((row) => ({ section, ...row }));
}

/** Adds the rows of sections that this run did not measure from the earlier file. */
function withKept(out: string, rows: Row[]): Row[] {
  if (!values.keep || !existsSync(out)) return rows;
  const { rows: before }: { rows: Row[] } = JSON.parse(readFileSync(out, 'utf8'));
  const anew = new Set(rows.map(({ section }) => section));
  return [...before.filter(({ section }) => !anew.has(section)), ...rows];
}

/** Sections that share one gateway on loopback. */
async function loopback(wanted: Section[], rows: Row[], skipped: string[]): Promise<void> {
  if (wanted.length === 0) return;
  let counter: Counter | undefined;
  // The agent dials the counter only in the tunnel's section; elsewhere it would distort the figures.
  const plain = await openBenchCluster();
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  rows.push(...of('idle', memoryRow('idle, just started', resident(plain))));
  for (const target of [plain.direct, plain.through]) await warm(target, quick ? 400 : 4_000);
  for (const name of wanted) {
    console.error(`bench: ${name}`);
    let cluster = plain;
    if (name === 'tunnel') {
      await endAll();
      cluster = await openBenchCluster(async (port) => {
        counter = await startCounter(port);
        return counter.url;
      });
    }
    const result = await section(
      name,
      cluster,
      counter ?? { url: '', take: () => ({ out: 0, back: 0 }), close: () => undefined },
    );
    if (typeof result === 'string') skipped.push(`${name}: ${result}`);
    else rows.push(...of(name, result));
  }
  counter?.close();
  await endAll();
}

async function main(): Promise<number> {
  const only = values.only?.split(',') ?? [...SECTIONS];
  const wanted = SECTIONS.filter((name) => only.includes(name));
  if (wanted.length === 0) {
    console.error(`no such section; there are: ${SECTIONS.join(', ')}`);
    return 2;
  }
  // Checked now, and not after the nine minutes before its section.
  if (wanted.includes('throughput')) await wrkVersion();
  const measuredOn = watchMachine();
  const rows: Row[] = [];
  const skipped: string[] = [];
  // `tunnel` last, because it starts its own gateway.
  const order = wanted.filter((name) => name !== 'wide' && name !== 'fairness' && name !== 'tunnel');
  await loopback([...order, ...wanted.filter((name) => name === 'tunnel')], rows, skipped);
  if (wanted.includes('fairness')) {
    console.error('bench: fairness');
    rows.push(...of('fairness', await fairness({ seed, requests: quick ? 20 : 120 })));
    await endAll();
  }
  if (wanted.includes('wide')) {
    console.error('bench: wide');
    const result = await wide({
      repeats: quick ? 1 : 3,
      requests: quick ? 5 : 30,
      ...(quick ? { bodyBytes: 32 * 1024 * 1024 } : {}),
    });
    if (typeof result === 'string') skipped.push(`wide: ${result}`);
    else rows.push(...of('wide', result));
  }
  const machine = measuredOn();
  for (const row of rows) row.taken = machine.date;
  console.log(`\n${aboutMachine(machine)}, seed ${seed}${quick ? ', QUICK: not to be quoted' : ''}\n`);
  console.log(table(rows));
  for (const reason of skipped) console.log(`\nnot measured: ${reason}`);
  const out = values.out ?? join(ROOT, 'bench/results', quick ? 'quick.local.json' : 'latest.json');
  mkdirSync(join(out, '..'), { recursive: true });
  const all = withKept(out, rows);
  writeFileSync(out, `${JSON.stringify({ machine, seed, quick, rows: all, skipped }, null, 2)}\n`);
  const missed = rows.filter((row) => row.met === false);
  console.log(
    `\n${missed.length === 0 ? 'Every requirement that was measured is met.' : `${missed.length} requirements are missed.`} Numbers: ${out}`,
  );
  return missed.length === 0 || quick ? 0 : 1;
}

await run(main);

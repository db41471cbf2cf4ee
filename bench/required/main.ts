/**
 * `npm run bench:required`: every figure that is required of the gateway, in one run of less than half an hour on a quiet
 * machine: the gateway of dist/ alternating with the original (`OTELA_GO`, see bench/peers/original.ts), then alone.
 * Prints `figure | ours | original | ratio | required`, writes bench/results/required.json; exit code 1 if a
 * requirement is missed. `--quick` only tests that it runs. `--wake-ups` measures only how much of the added latency
 * is idle cores that wake up, in ten minutes, and writes bench/results/wake-ups.json.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { errorText } from '../../shared/text/error-text.ts';
import { endAll, freePort, Managed } from '../../test/support/processes.ts';
import { ROOT } from '../../test/support/where.ts';
import { warm } from '../bench-cluster.ts';
import { aboutMachine, type Machine, watchMachine } from '../machine.ts';
import { wrkVersion } from '../programs.ts';
import { run } from '../run.ts';
import { wide } from '../sections/wide.ts';
import { median } from '../stats.ts';
import { besideRouters, sealedCpu, tokensBesideWeights } from './beside.ts';
import { withCause } from './causes.ts';
import { agentMemoryRow, memoryRow, openComparisonCluster, rest } from './comparison-cluster.ts';
import { growth, memoryOfStreams } from './growth.ts';
import { causesOf, isMet, type Required, requiredTable } from './row.ts';
import { added, figureOf, type Plan, requests } from './side-by-side.ts';
import { crowdOfStreams, pacedStreams, unpacedStreams } from './streams.ts';
import { wakeUpTable } from './wake-up-table.ts';
import { sidesOf, wakeUps } from './wake-ups.ts';

const IDLE_MOST_MIB = 80;
const AFTER_MOST_MIB = 160;
const AGENT_MOST_MIB = 120;
/** The added TTFT through NAT is compared with that at a similar rate on loopback. */
const NAT = { perSecond: 16, most: 1.2 };

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    seed: { type: 'string', default: '1' },
    out: { type: 'string' },
    'wake-ups': { type: 'boolean', default: false },
  },
});
const quick = values.quick;
const seed = Number(values.seed);
const plan: Plan = {
  seed,
  rounds: quick ? 1 : 3,
  requests: (perSecond) => (quick ? 3 : perSecond === 64 ? 5 : 8) * perSecond,
  seconds: quick ? 1 : 4,
};

/** Adds its rows one by one, so that a failure keeps those before it. */
async function loopback(rows: Required[], notes: string[]): Promise<Required[]> {
  const cluster = await openComparisonCluster(notes);
  const { sides } = cluster;
  await rest();
  rows.push(memoryRow('RSS of the gateway, idle (original: its head)', cluster, IDLE_MOST_MIB));
  for (const target of [sides.direct, sides.ours, sides.original])
    if (target !== undefined) await warm(target, quick ? 200 : 4_000);
  console.error('bench: added latency');
  rows.push(...(await added(sides, plan)));
  console.error('bench: requests per second');
  rows.push(...(await requests(sides, plan)));
  console.error('bench: streams');
  rows.push(await unpacedStreams(sides, { rounds: quick ? 1 : 5, tokens: quick ? 200 : 2_000 }));
  rows.push(await pacedStreams(sides, { rounds: quick ? 1 : 3, tokens: quick ? 50 : 400, seed }));
  await rest();
  rows.push(memoryRow('RSS of the gateway after wrk and 256 streams', cluster, AFTER_MOST_MIB));
  rows.push(agentMemoryRow('RSS of the agent after that (original: its worker)', cluster, AGENT_MOST_MIB));
  await Promise.all([cluster.original?.head.stop(), cluster.original?.worker.stop()]);
  console.error('bench: a thousand streams');
  return [await crowdOfStreams(sides.ours, { rounds: quick ? 1 : 5, seconds: quick ? 2 : 10 })];
}

/** `loopback`: the added TTFT in this run without NAT. */
async function throughNat(loopback: number): Promise<Required> {
  const row: Required = {
    figure: `added TTFT through NAT, 20 ms each way (required: ${NAT.most} × that at ${NAT.perSecond}/s)`,
    unit: 'ms',
    of: 'ours',
    most: Number((NAT.most * loopback).toFixed(2)),
  };
  const found = await wide({ repeats: quick ? 1 : 3, requests: quick ? 5 : 30, bodyBytes: 0 });
  return typeof found === 'string' ? { ...row, note: `not measured: ${found}` } : { ...row, ours: found[0]?.value };
}

/** Time until `npm start` prints its URL. The page is already built, as after a first start. */
async function timeOfStart(): Promise<Required> {
  const seconds: number[] = [];
  for (let n = 0; n < (quick ? 1 : 3); n++) {
    const startedAt = performance.now();
    const demo = new Managed(['npm', 'start', '--silent', '--', '--port', String(await freePort())], {
      cwd: ROOT,
      env: process.env as Record<string, string>,
    });
    await demo.line(/URL\s+http/, 60_000);
    seconds.push((performance.now() - startedAt) / 1_000);
    await demo.stop();
  }
  return {
    figure: '`npm start` to its URL',
    ours: median(seconds),
    unit: 's',
    of: 'ours',
    required: 'no more than before',
  };
}

function write(name: string, results: object): void {
  const out = values.out ?? join(ROOT, 'bench/results', quick ? `${name}.local.json` : `${name}.json`);
  mkdirSync(join(out, '..'), { recursive: true });
  writeFileSync(out, `${JSON.stringify(results, null, 2)}\n`);
  console.log(`Numbers: ${out}`);
}

const conditions = (machine: Machine) =>
  `${aboutMachine(machine)}, seed ${seed}${quick ? ', QUICK: not to be quoted' : ''}`;

async function onlyWakeUps(): Promise<number> {
  const measuredOn = watchMachine();
  const notes: string[] = [];
  const cluster = await openComparisonCluster(notes);
  const sides = await sidesOf(cluster);
  for (const { target } of sides) await warm(target, quick ? 200 : 4_000);
  const rows = await wakeUps(cluster, sides, { ...plan, rounds: quick ? 1 : 5 });
  const machine = measuredOn();
  console.log(`\n${[conditions(machine), wakeUpTable(rows), ...notes].join('\n\n')}\n`);
  write('wake-ups', { machine, seed, quick, rows, notes });
  return 0;
}

/** Runs the sections one after another. A section that fails leaves a row with its reason. */
async function sections(rows: Required[], notes: string[]): Promise<boolean> {
  const loopbackTtft = () => rows.find(({ figure }) => figure === figureOf('TTFT', NAT.perSecond))?.ours ?? Number.NaN;
  const parts: [name: string, measure: () => Promise<Required[]>][] = [
    ['loopback', () => loopback(rows, notes)],
    ['NAT', async () => [await throughNat(loopbackTtft())]],
    ['other routers', () => besideRouters(plan)],
    ['tokens while weights are sent', async () => [await tokensBesideWeights(quick)]],
    ['sealed requests', async () => [await sealedCpu(quick)]],
    ['memory of streams', async () => [await memoryOfStreams(quick)]],
    ['many agents', () => growth(quick)],
    ['npm start', async () => [await timeOfStart()]],
  ];
  let complete = true;
  for (const [name, measure] of parts) {
    console.error(`bench: ${name}, ${(performance.now() / 60_000).toFixed(1)} minutes after the start`);
    try {
      rows.push(...(await measure()));
    } catch (error) {
      complete = false;
      rows.push({ figure: name, unit: '', of: 'ours', note: `not measured: ${errorText(error)}` });
    } finally {
      await endAll();
    }
  }
  return complete;
}

async function main(): Promise<number> {
  if (values['wake-ups']) return onlyWakeUps();
  await wrkVersion();
  const measuredOn = watchMachine();
  const [measured, notes]: [Required[], string[]] = [[], []];
  const complete = await sections(measured, notes);
  const rows = measured.map(withCause);
  const machine = measuredOn();
  console.log(`\n${[conditions(machine), requiredTable(rows), causesOf(rows).join('\n')].join('\n\n')}\n`);
  for (const { figure, ours, note } of rows)
    if (ours !== undefined && note !== undefined) console.log(`${figure}: ${note}`);
  for (const note of notes) console.log(note);
  write('required', { machine, seed, quick, rows, notes });
  return complete && (quick || rows.every((row) => isMet(row) !== false)) ? 0 : 1;
}

await run(main);

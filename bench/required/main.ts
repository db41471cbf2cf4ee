/**
 * `npm run bench:required`: every figure that is required of the gateway, in one run of about ten minutes on a quiet
 * machine: the gateway of dist/ alternating with the original (`OTELA_GO`, see bench/peers/original.ts), then alone.
 * Prints `figure | ours | original | ratio | required`, writes bench/results/required.json; exit code 1 if a
 * requirement is missed. `--quick` only tests that it runs.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { endAll, freePort, Managed, memoryOf } from '../../test/support/processes.ts';
import { ROOT } from '../../test/support/where.ts';
import { warm } from '../bench-cluster.ts';
import { aboutMachine, watchMachine } from '../machine.ts';
import { wrkVersion } from '../programs.ts';
import { run } from '../run.ts';
import { wide } from '../sections/wide.ts';
import { median } from '../stats.ts';
import { memoryRow, openComparisonCluster, rest } from './comparison-cluster.ts';
import { growth, memoryOfStreams } from './growth.ts';
import { isMet, type Required, requiredTable } from './row.ts';
import { added, type Plan, requests } from './side-by-side.ts';
import { crowdOfStreams, pacedStreams, unpacedStreams } from './streams.ts';

const IDLE_MOST_MIB = 110;
const AFTER_MOST_MIB = 260;
const NAT_MOST_MS = 1.5;

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    seed: { type: 'string', default: '1' },
    out: { type: 'string' },
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

async function loopback(rows: Required[], notes: string[]): Promise<void> {
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
  const pids = { agent: cluster.agent.pid, 'original’s worker': cluster.original?.worker.pid };
  for (const [name, pid] of Object.entries(pids))
    if (pid !== undefined) notes.push(`RSS of the ${name} after that: ${memoryOf(pid).rssMib.toFixed(0)} MiB`);
  await Promise.all([cluster.original?.head.stop(), cluster.original?.worker.stop()]);
  console.error('bench: a thousand streams');
  rows.push(await crowdOfStreams(sides.ours, { rounds: quick ? 1 : 5, seconds: quick ? 2 : 10 }));
  await endAll();
}

async function throughNat(): Promise<Required> {
  const row: Required = { figure: 'added TTFT through NAT, 20 ms each way', unit: 'ms', of: 'ours', most: NAT_MOST_MS };
  const found = await wide({ repeats: quick ? 1 : 3, requests: quick ? 5 : 30, bodyBytes: 0 });
  await endAll();
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

async function main(): Promise<number> {
  await wrkVersion();
  const measuredOn = watchMachine();
  const [rows, notes]: [Required[], string[]] = [[], []];
  await loopback(rows, notes);
  console.error('bench: NAT');
  rows.push(await throughNat());
  console.error('bench: memory of streams');
  rows.push(await memoryOfStreams(quick));
  await endAll();
  console.error('bench: many agents');
  rows.push(...(await growth(quick)));
  await endAll();
  console.error('bench: npm start');
  rows.push(await timeOfStart());
  const machine = measuredOn();
  console.log(
    `\n${aboutMachine(machine)}, seed ${seed}${quick ? ', QUICK: not to be quoted' : ''}\n\n${requiredTable(rows)}\n`,
  );
  for (const { figure, ours, note } of rows)
    if (ours !== undefined && note !== undefined) console.log(`${figure}: ${note}`);
  for (const note of notes) console.log(note);
  const out = values.out ?? join(ROOT, 'bench/results', quick ? 'required.local.json' : 'required.json');
  mkdirSync(join(out, '..'), { recursive: true });
  writeFileSync(out, `${JSON.stringify({ machine, seed, quick, rows, notes }, null, 2)}\n`);
  console.log(`Numbers: ${out}`);
  return quick || rows.every((row) => isMet(row) !== false) ? 0 : 1;
}

await run(main);

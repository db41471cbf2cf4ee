/**
 * `npm run bench:gossip`: how fast updates spread among agents, what idle agents send, the cost of churn, and how soon
 * a killed agent is noticed. Method: bench/README.md. `--only 8,32,128,10` runs some sizes; `--quick` only tests that
 * it runs.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { seeded } from '../../test/support/random.ts';
import { ROOT } from '../../test/support/where.ts';
import { aboutMachine, watchMachine } from '../machine.ts';
import { type Row, table } from '../report.ts';
import { run } from '../run.ts';
import { GossipCluster } from './gossip-cluster.ts';
import { churn, hung, idle, killed, spread } from './measures.ts';
import { inOwnNetwork } from './network.ts';

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string', default: '8,32,128,10' },
    seed: { type: 'string', default: '1' },
    out: { type: 'string' },
  },
});

/** Extra links from the start are dropped after 10 s; "idle" means after that. */
const SETTLE_MS = 12_000;

async function size(agents: number, rows: Row[], skipped: string[]): Promise<void> {
  console.error(`bench: ${agents} agents`);
  const random = seeded(Number(values.seed) * 1_000 + agents);
  const processes = agents > 32 ? 4 : agents;
  const startedAt = performance.now();
  const village = await GossipCluster.open(processes, agents / processes, random);
  await village.together();
  const together = (performance.now() - startedAt) / 1_000;
  rows.push({
    what: 'all know all, from the first start on',
    at: `${agents} agents in ${processes} processes`,
    value: together,
    unit: 's',
  });
  await sleep(values.quick ? 2_000 : SETTLE_MS);
  if (agents === 10) {
    rows.push(...(await churn(village, 3_000, values.quick ? 2 : 5, skipped)));
  } else {
    rows.push(...(await spread(village, values.quick ? 5 : 50)));
    rows.push(...(await idle(village, values.quick ? 3_000 : 20_000, skipped)));
    if (processes === agents) {
      rows.push(...(await hung(village, values.quick ? 1 : 5)));
      rows.push(...(await killed(village)));
    }
  }
  await village.close();
}

async function main(): Promise<number> {
  const measuredOn = watchMachine();
  const rows: Row[] = [];
  const skipped: string[] = [];
  for (const agents of values.only.split(',').map(Number)) await size(agents, rows, skipped);
  const machine = measuredOn();
  const quick = values.quick ? ', QUICK: not to be quoted' : '';
  console.log(`\n${aboutMachine(machine)}, seed ${values.seed}${quick}\n`);
  console.log(table(rows));
  for (const reason of skipped) console.log(`\nnot measured: ${reason}`);
  const out = values.out ?? join(ROOT, 'bench/results', values.quick ? 'gossip-quick.local.json' : 'gossip.json');
  mkdirSync(join(out, '..'), { recursive: true });
  writeFileSync(
    out,
    `${JSON.stringify({ machine, seed: Number(values.seed), quick: values.quick, rows, skipped }, null, 2)}\n`,
  );
  const missed = rows.filter((row) => row.met === false);
  console.log(
    `\n${missed.length === 0 ? 'Every requirement that was measured is met.' : `${missed.length} requirements are missed.`} Numbers: ${out}`,
  );
  return missed.length === 0 || values.quick ? 0 : 1;
}

const elsewhere = inOwnNetwork(process.argv.slice(1));
if (elsewhere !== undefined) {
  process.exitCode = elsewhere;
} else {
  await run(main);
}

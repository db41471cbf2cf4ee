/**
 * `npm run bench:peers`: compares this gateway with programs that people put before an engine today, on one machine,
 * with the same client and engines; each alternates with the engine itself. `--only nginx,litellm` measures some,
 * `--quick` only tests that it runs. Prints a table and writes bench/results/peers.json. Installs what is missing into
 * the user's cache (`installed.ts`).
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { errorText } from '../../shared/text/error-text.ts';
import { startEngine as startStandIn } from '../../test/support/engine.ts';
import { atEnd, endAll } from '../../test/support/processes.ts';
import { ROOT } from '../../test/support/where.ts';
import { request, startEngine, warm } from '../bench-cluster.ts';
import type { Target } from '../client.ts';
import { aboutMachine, watchMachine } from '../machine.ts';
import { wrkVersion } from '../programs.ts';
import { memoryRow, openComparisonCluster } from '../required/comparison-cluster.ts';
import { type Required, requiredTable } from '../required/row.ts';
import { added, requests } from '../required/side-by-side.ts';
import { run } from '../run.ts';
import { interleaved, Pool, type Side } from '../sections/latency.ts';
import { wrk } from '../sections/throughput.ts';
import { unpaced } from '../sections/tokens.ts';
import { median, repeated } from '../stats.ts';
import { behaviourOf } from './behaviour.ts';
import { nginx, sshTunnel } from './nginx.ts';
import { original } from './original.ts';
import { ours } from './ours.ts';
import { MODEL, type Peer } from './peer.ts';
import { portkey } from './portkey.ts';
import { litellm, sglangRouter, vllmRouter } from './python-peers.ts';
import { type Result, tableOf } from './result.ts';

const PEERS: readonly Peer[] = [nginx, sshTunnel, vllmRouter, sglangRouter, portkey, litellm, original, ours];
const RATE = 16;
const CONNECTIONS = 64;

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    quick: { type: 'boolean', default: false },
    seed: { type: 'string', default: '1' },
    out: { type: 'string' },
  },
});
const plan = values.quick
  ? { repeats: 1, requests: 60, seconds: 2, tokens: 200, warm: 200 }
  : { repeats: 3, requests: 160, seconds: 4, tokens: 1_000, warm: 2_000 };

async function addedBy(direct: Target, peer: Target, stream: boolean): Promise<number> {
  const bytes = (target: Target) =>
    stream ? request(target, 'stream 16 0', { stream: true }) : request(target, 'unary');
  const pools = [direct, peer].map((target) => ({ pool: new Pool(target), bytes: bytes(target) }));
  const differences: number[] = [];
  for (let n = 0; n < plan.repeats; n++) {
    const sides: Side[] = pools.map((side) => ({ ...side, times: [], failed: 0 }));
    await interleaved(sides, RATE, plan.requests, Number(values.seed) + n * 10, stream);
    const failed = sides.reduce((sum, side) => sum + side.failed, 0);
    if (failed > 0) throw new Error(`${failed} requests failed`);
    const [before = Number.NaN, after = Number.NaN] = sides.map(({ times }) => median(times));
    differences.push(after - before);
  }
  for (const { pool } of pools) pool.close();
  return median(differences);
}

/** Alternates figures of the peer and of the engine. The first pair is a warm-up. */
async function inTurns(measure: (target: Target) => Promise<number>, direct: Target, peer: Target) {
  for (const each of [direct, peer]) await measure(each);
  const figures = { direct: [] as number[], peer: [] as number[], ratio: [] as number[] };
  for (let n = 0; n < plan.repeats; n++) {
    const [before, after] = [await measure(direct), await measure(peer)];
    figures.direct.push(before);
    figures.peer.push(after);
    figures.ratio.push(after / before);
  }
  return figures;
}

async function measured(peer: Peer): Promise<Result> {
  const version = await peer.install();
  const { url } = await startEngine();
  const direct: Target = { url };
  const target = await peer.start(url);
  for (const each of [direct, target]) await warm(each, plan.warm);
  const unaryMs = await addedBy(direct, target, false);
  const firstTokenMs = await addedBy(direct, target, true);
  const requests = async (each: Target) => (await wrk(each, CONNECTIONS, plan.seconds)).perSecond;
  const requestsSeen = await inTurns(requests, direct, target);
  const tokensSeen = await inTurns((each) => unpaced(each, plan.tokens), direct, target);
  await endAll();
  const standIn = await startStandIn({ models: [MODEL] });
  atEnd(() => standIn.close());
  const behaviour = await behaviourOf(standIn, await peer.start(standIn.url));
  await endAll();
  return {
    name: peer.name,
    version,
    does: peer.does,
    unaryMs,
    firstTokenMs,
    perSecond: repeated(requestsSeen.peer).median,
    directPerSecond: repeated(requestsSeen.direct).median,
    tokens: repeated(tokensSeen.ratio).median,
    behaviour,
  };
}

/**
 * Measures our requirements relative to the original, alternating, with one engine. Empty if the original's program is
 * missing.
 */
async function besideOriginal(): Promise<Required[]> {
  const cluster = await openComparisonCluster([]);
  const { sides } = cluster;
  if (sides.original === undefined) return [];
  for (const target of [sides.direct, sides.ours, sides.original]) await warm(target, plan.warm);
  const turns = {
    rounds: plan.repeats,
    requests: (perSecond: number) => 5 * perSecond,
    seconds: plan.seconds,
    seed: Number(values.seed),
  };
  const rows = [...(await added(sides, turns)), ...(await requests(sides, turns))];
  return [...rows, memoryRow('RSS after that (original: its head)', cluster)];
}

async function main(): Promise<number> {
  const only = values.only?.split(',').map((name) => name.trim().toLowerCase());
  const wanted = PEERS.filter(({ name }) => only === undefined || only.includes(name.toLowerCase()));
  if (wanted.length === 0) {
    console.error(`no such peer; there are: ${PEERS.map(({ name }) => name).join(' · ')}`);
    return 2;
  }
  await wrkVersion();
  const measuredOn = watchMachine();
  const results: Result[] = [];
  const skipped: string[] = [];
  for (const peer of wanted) {
    console.error(`bench: ${peer.name}`);
    try {
      results.push(await measured(peer));
    } catch (error) {
      skipped.push(`${peer.name}: ${errorText(error)}`);
    } finally {
      await endAll();
    }
  }
  const beside =
    wanted.includes(original) && skipped.every((reason) => !reason.startsWith(original.name))
      ? await besideOriginal()
      : [];
  await endAll();
  const machine = measuredOn();
  console.log(`\n${aboutMachine(machine)}${values.quick ? ', QUICK: not to be quoted' : ''}\n\n${tableOf(results)}`);
  if (beside.length > 0) console.log(`\n${requiredTable(beside)}`);
  for (const reason of skipped) console.log(`\nnot measured: ${reason}`);
  const out = values.out ?? join(ROOT, 'bench/results', values.quick ? 'peers.local.json' : 'peers.json');
  mkdirSync(join(out, '..'), { recursive: true });
  writeFileSync(out, `${JSON.stringify({ machine, quick: values.quick, results, beside, skipped }, null, 2)}\n`);
  console.log(`\nNumbers: ${out}`);
  return results.length > 0 && skipped.length === 0 ? 0 : 1;
}

await run(main);

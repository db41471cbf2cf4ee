/**
 * `npm run bench:required -- --wake-ups`: how much of a lone request's added latency is idle cores that wake up. The
 * paced requests of all sides in the same seconds, alternately with idle cores and with a loop of idle priority on each core, so
 * that no core halts.
 */
import { cpus } from 'node:os';
import { join } from 'node:path';
import { Managed } from '../../test/support/processes.ts';
import { NODE, ROOT } from '../../test/support/where.ts';
import { request } from '../bench-cluster.ts';
import type { Target } from '../client.ts';
import { ranFor, switchesOf } from '../ran-for.ts';
import { interleaved, Pool, type Side } from '../sections/latency.ts';
import { median } from '../stats.ts';
import type { ComparisonCluster } from './comparison-cluster.ts';
import { type Plan, RATES } from './side-by-side.ts';
import type { Figures, WakeUpRow } from './wake-up-table.ts';

const READY_MS = 10_000;
const NS_PER_US = 1_000;

/** A side and the processes between client and engine. */
interface Measured {
  name: string;
  target: Target;
  pids: number[];
}

async function rawRelay(to: string): Promise<{ pid: number; url: string }> {
  const relay = new Managed([NODE, join(ROOT, 'bench/required/raw-relay.ts'), '--to', to], { label: 'raw relay' });
  const [, url = ''] = await relay.line(/raw relay ready (\S+)/, READY_MS);
  return { pid: relay.pid, url };
}

/** All sides but the direct one: two raw relays in a row, ours, and the original if it is available. */
export async function sidesOf({ sides, gateway, agent, original }: ComparisonCluster): Promise<Measured[]> {
  const inner = await rawRelay(sides.direct.url);
  const outer = await rawRelay(inner.url);
  const measured: Measured[] = [
    { name: 'two raw relays', target: { url: outer.url }, pids: [outer.pid, inner.pid] },
    { name: 'ours', target: sides.ours, pids: [gateway.process.pid, agent.pid] },
  ];
  if (original !== undefined) {
    const { target, head, worker } = original;
    measured.push({ name: 'original', target, pids: [head.pid, worker.pid] });
  }
  return measured;
}

/** Runs `work` while a loop of idle priority keeps each core from idling. */
async function withBusyCores(work: () => Promise<void>): Promise<void> {
  const loops = cpus().map((_, core) => {
    const command = ['chrt', '-i', '0', 'taskset', '-c', String(core), NODE];
    return new Managed([...command, join(ROOT, 'bench/required/busy-loop.ts')], { label: 'busy loop' });
  });
  try {
    await Promise.all(loops.map((loop) => loop.line(/busy loop ready/, READY_MS)));
    await work();
  } finally {
    await Promise.all(loops.map((loop) => loop.stop()));
  }
}

const sumOf = (pids: readonly number[], count: (pid: number) => number) =>
  pids.reduce((sum, pid) => sum + count(pid), 0);

/** One repeat: all sides in the same seconds. Returns the figures of each measured side. */
async function repeat(pools: readonly (Side & Measured)[], perSecond: number, plan: Plan, first: boolean, n: number) {
  const sides = pools.map((side) => ({ ...side, times: [] as number[], failed: 0 }));
  const counts = () => sides.map(({ pids }) => [sumOf(pids, ranFor), sumOf(pids, switchesOf)] as const);
  const before = counts();
  await interleaved(sides, perSecond, plan.requests(perSecond), plan.seed + n * 10, first);
  const after = counts();
  const direct = median(sides.find(({ name }) => name === 'direct')?.times ?? []);
  return sides.map(({ name, times, failed }, at): Figures => {
    if (failed > 0 && name !== 'original') throw new Error(`${failed} requests of ${name} failed at ${perSecond}/s`);
    const grown = (which: 0 | 1) => ((after[at]?.[which] ?? 0) - (before[at]?.[which] ?? 0)) / times.length;
    return { added: median(times) - direct, cpuUs: grown(0) / NS_PER_US, switches: grown(1) };
  });
}

function mediansOf(repeats: readonly (readonly Figures[])[], side: number): Figures {
  const of = (name: keyof Figures) => median(repeats.map((figures) => figures[side]?.[name] ?? Number.NaN));
  return { added: of('added'), cpuUs: of('cpuUs'), switches: of('switches') };
}

async function rowsAt(kind: WakeUpRow['kind'], perSecond: number, all: readonly Measured[], plan: Plan) {
  const bytes = (target: Target) =>
    kind === 'unary' ? request(target, 'unary') : request(target, 'stream 16 0', { stream: true });
  const pools = all.map((side) => {
    return { ...side, pool: new Pool(side.target), bytes: bytes(side.target), times: [], failed: 0 };
  });
  const seen = { idle: [] as Figures[][], busy: [] as Figures[][] };
  const turn = async (state: 'idle' | 'busy', n: number) => {
    const work = async () => void seen[state].push(await repeat(pools, perSecond, plan, kind === 'TTFT', n));
    await (state === 'busy' ? withBusyCores(work) : work());
  };
  for (let n = 0; n < plan.rounds; n++)
    for (const state of n % 2 === 0 ? (['idle', 'busy'] as const) : (['busy', 'idle'] as const)) await turn(state, n);
  for (const { pool } of pools) pool.close();
  return all.flatMap(({ name }, at): WakeUpRow[] =>
    name === 'direct'
      ? []
      : [{ kind, perSecond, side: name, idle: mediansOf(seen.idle, at), busy: mediansOf(seen.busy, at) }],
  );
}

export async function wakeUps(cluster: ComparisonCluster, sides: readonly Measured[], plan: Plan) {
  const all = [{ name: 'direct', target: cluster.sides.direct, pids: [] }, ...sides];
  const rows: WakeUpRow[] = [];
  for (const kind of ['unary', 'TTFT'] as const)
    for (const perSecond of RATES) rows.push(...(await rowsAt(kind, perSecond, all, plan)));
  return rows;
}

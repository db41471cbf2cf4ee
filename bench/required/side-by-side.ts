/** Our gateway and the original before one engine, alternating: the cost of a request, and the throughput. */

import { request } from '../bench-cluster.ts';
import type { Target } from '../client.ts';
import { interleaved, Pool, type Side } from '../sections/latency.ts';
import { wrk } from '../sections/throughput.ts';
import { median } from '../stats.ts';
import type { Required } from './row.ts';

export interface Sides {
  direct: Target;
  ours: Target;
  original: Target | undefined;
}

export interface Plan {
  rounds: number;
  /** Requests per side, rate and round. */
  requests(perSecond: number): number;
  /** Seconds of wrk per side and round. */
  seconds: number;
  seed: number;
}

export const RATES = [4, 16, 64];
const CONNECTIONS = [
  { connections: 1, least: 1.3 },
  { connections: 50, least: 1.8 },
  { connections: 64, least: 1.8 },
];
const ADDED_MOST = 1;
/** For a node on the gateway's own host. Here all nodes are, and the gateway treats them as it treats remote ones. */
const OWN_HOST = { perSecond: 16, most: 0.6 };

type Name = 'ours' | 'original';
type Rounds = Record<Name, number[]>;

function present({ ours, original }: Sides): [Name, Target][] {
  return original === undefined
    ? [['ours', ours]]
    : [
        ['ours', ours],
        ['original', original],
      ];
}

/** Figures of the paired rounds: the median of their ratios. */
function figuresOf({ ours, original }: Rounds): Pick<Required, 'ours' | 'original' | 'ratio'> {
  if (original.length === 0) return { ours: median(ours) };
  const ratio = median(ours.map((value, n) => value / (original[n] ?? Number.NaN)));
  return { ours: median(ours), original: median(original), ratio };
}

export const figureOf = (kind: 'unary' | 'TTFT', perSecond: number) =>
  `added to the median ${kind === 'unary' ? 'non-streaming request' : kind} at ${perSecond}/s`;

async function addedAt(sides: Sides, kind: 'unary' | 'TTFT', perSecond: number, plan: Plan): Promise<Required> {
  const make = (target: Target) =>
    kind === 'unary' ? request(target, 'unary') : request(target, 'stream 16 0', { stream: true });
  const all: [Name | 'direct', Target][] = [['direct', sides.direct], ...present(sides)];
  const pools = all.map(([name, target]) => ({ name, pool: new Pool(target), bytes: make(target) }));
  const rounds: Rounds = { ours: [], original: [] };
  let lost = 0;
  for (let n = 0; n < plan.rounds; n++) {
    const round = pools.map((side): Side & { name: string } => ({ ...side, times: [], failed: 0 }));
    await interleaved(round, perSecond, plan.requests(perSecond), plan.seed + n * 10, kind === 'TTFT');
    for (const { name, failed } of round) {
      if (failed > 0 && name !== 'original') throw new Error(`${failed} requests failed at ${perSecond}/s`);
      if (name === 'original') lost += failed;
    }
    const at = (name: string) => median(round.find((side) => side.name === name)?.times ?? []);
    for (const [name] of present(sides)) rounds[name].push(at(name) - at('direct'));
  }
  for (const { pool } of pools) pool.close();
  return {
    figure: figureOf(kind, perSecond),
    ...figuresOf(rounds),
    unit: 'ms',
    of: 'ratio',
    most: ADDED_MOST,
    ...(lost === 0
      ? {}
      : { note: `the original failed ${lost} of ${plan.rounds * plan.requests(perSecond)} requests` }),
  };
}

export async function added(sides: Sides, plan: Plan): Promise<Required[]> {
  const rows: Required[] = [];
  for (const kind of ['unary', 'TTFT'] as const)
    for (const perSecond of RATES) rows.push(await addedAt(sides, kind, perSecond, plan));
  const own = rows.find(({ figure }) => figure === figureOf('unary', OWN_HOST.perSecond));
  if (own !== undefined)
    rows.push({ ...own, figure: `${own.figure}, node on the gateway’s host`, most: OWN_HOST.most });
  return rows;
}

export async function requests(sides: Sides, plan: Plan): Promise<Required[]> {
  const rows: Required[] = [];
  for (const { connections, least } of CONNECTIONS) {
    const rounds: Rounds = { ours: [], original: [] };
    for (let n = 0; n < plan.rounds; n++)
      for (const [name, target] of n % 2 === 0 ? present(sides) : present(sides).toReversed())
        rounds[name].push((await wrk(target, connections, plan.seconds)).perSecond);
    rows.push({
      figure: `requests per second at ${connections} connection${connections === 1 ? '' : 's'}`,
      ...figuresOf(rounds),
      unit: '/s',
      of: 'ratio',
      least,
    });
  }
  return rows;
}

import { chartsSvg } from '../../../shared/text/chart.ts';
import { type Placed, place } from '../../orchestration/placement.ts';
import { shardMoves } from '../../orchestration/shards.ts';
import { switchCost } from '../../orchestration/switch-cost.ts';
import { greedyTransfers, H100_LINKS, transferBound } from '../../orchestration/transfer.ts';
import type { DeploymentPlan } from '../../orchestration/types.ts';
import { table } from '../../validate/table.ts';
import { row, statement } from '../rows.ts';
import { runOurs } from './policies.ts';
import type { RunOptions, Section } from './section.ts';
import { setupOf } from './setups.ts';

const of = (...groups: [replicas: number, tp: number, pp: number][]): DeploymentPlan =>
  groups.map(([replicas, tp, pp]) => ({ replicas, shape: { tp, pp } }));
/** Deployments of 16 GPUs, one to the next. */
const CASES: [DeploymentPlan, DeploymentPlan][] = [
  [of([8, 2, 1]), of([4, 4, 1])],
  [of([4, 4, 1]), of([2, 8, 1])],
  [of([2, 8, 1]), of([8, 2, 1])],
  [of([4, 2, 2]), of([2, 4, 2])],
  [of([2, 2, 4]), of([4, 4, 1])],
  [of([1, 8, 1], [4, 2, 1]), of([2, 4, 1], [4, 2, 1])],
];

export async function switchClaims({ quick }: RunOptions): Promise<Section> {
  const model = 'facebook/opt-30b';
  const { site } = setupOf({ model, gpus: 16, trace: 'azure', span: 2 }).table;
  const rows: (string | number)[][] = [];
  let [peerMax, reloadMin, aboveBound] = [0, Number.POSITIVE_INFINITY, 0];
  for (const [from, to] of CASES) {
    const running: Placed[] = place(from, [], site).replicas;
    const moves = shardMoves(running, place(to, running, site).replicas);
    const [peer, reload] = [switchCost(running, to, site, 'peer transfer'), switchCost(running, to, site, 'reload')];
    const bytes = 60e9;
    const greedy = greedyTransfers(moves, bytes, H100_LINKS).seconds;
    const bound = await transferBound(moves, bytes, H100_LINKS);
    peerMax = Math.max(peerMax, peer.seconds);
    reloadMin = Math.min(reloadMin, reload.seconds);
    aboveBound = Math.max(aboveBound, bound > 0 ? greedy / bound : 1);
    rows.push([
      `${text(from)} → ${text(to)}`,
      peer.seconds.toFixed(1),
      reload.seconds.toFixed(1),
      greedy.toFixed(3),
      bound.toFixed(3),
      peer.transfer.bottleneck,
    ]);
  }
  const sweep = await sweepOf(model, quick);
  const at = (seconds: number) => sweep.find(([s]) => s === seconds)?.[1] ?? Number.NaN;
  return {
    title: 'Switching (Algorithm 2, Figure 13)',
    rows: [
      row('longest switch by transfer between GPUs', 's', peerMax, { paper: 10, band: [0, 10] }),
      row('shortest switch by reload', 's', reloadMin, { paper: 50, band: [40, 200] }),
      row('greedy transfer over the bound of the linear program, worst', '×', aboveBound, { band: [1, 2.5] }),
      row('P99 at a switch of 50 s over one of 10 s', '×', at(50) / at(10), { paper: 1.17 }),
      statement(
        'no switching time up to the longest makes P99 more than 60 % longer',
        sweep.every(([, p99]) => p99 <= at(0) * 1.6),
      ),
    ],
    verdicts: [],
    text: table(['switch', 'transfer s', 'reload s', 'greedy bytes s', 'bound s', 'fullest link'], rows),
    pictures: [
      [
        'oserve-switch-cost',
        chartsSvg([
          {
            title: 'P99 by what a switch costs',
            x: 'seconds of a switch',
            y: 'P99, s',
            series: [{ name: 'OPT-30B on 16 H100, Azure', points: sweep.map(([s, p99]) => [s, p99] as const) }],
          },
        ]),
      ],
    ],
  };
}

const text = (plan: DeploymentPlan) =>
  plan.map(({ shape, replicas }) => `${replicas}×${shape.tp}.${shape.pp}`).join('+');

async function sweepOf(model: string, quick: boolean): Promise<[number, number, number][]> {
  const setup = setupOf({ model, gpus: 16, trace: 'azure', span: 2 });
  return (quick ? [0, 10, 50] : [0, 5, 10, 20, 30, 50, 80]).map((switchS) => {
    const { latency, switches } = runOurs(setup, { switchS });
    return [switchS, latency.p99, switches];
  });
}

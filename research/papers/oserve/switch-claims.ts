import { table } from '../../../scheduler/validate/text-table.ts';
import { chartsSvg } from '../../../shared/text/svg-chart.ts';
import type { DeploymentPlan } from '../../orchestration/deployment-plan.ts';
import { type PlacedReplica, place } from '../../orchestration/placement.ts';
import { shardMoves } from '../../orchestration/shards.ts';
import { switchCost } from '../../orchestration/switch-cost.ts';
import { greedyTransfers, H100_LINKS, transferBound } from '../../orchestration/transfer.ts';
import { row } from '../rows.ts';
import { flipSetup } from './flip.ts';
import { bestStatic, knowing, runOurs } from './policies.ts';
import type { RunOptions, Section } from './section.ts';
import { setupOf } from './setups.ts';

const of = (...groups: [replicas: number, tp: number, pp: number][]): DeploymentPlan =>
  groups.map(([replicas, tp, pp]) => ({ replicas, shape: { tp, pp } }));
/** Deployments of 16 GPUs, each with the next one. */
const CASES: [DeploymentPlan, DeploymentPlan][] = [
  [of([8, 2, 1]), of([4, 4, 1])],
  [of([4, 4, 1]), of([2, 8, 1])],
  [of([2, 8, 1]), of([8, 2, 1])],
  [of([4, 2, 2]), of([2, 4, 2])],
  [of([2, 2, 4]), of([4, 4, 1])],
  [of([1, 8, 1], [4, 2, 1]), of([2, 4, 1], [4, 2, 1])],
];

const NO_SWITCH =
  'the planner finds the better deployment, but in an overload that lasts, the requests that already wait are most of the cost, so that a change saves less than its margin of 30 %';

export async function switchClaims({ quick }: RunOptions): Promise<Section> {
  const model = 'facebook/opt-30b';
  const { site } = setupOf({ model, gpus: 16, trace: 'azure', span: 2 }).table;
  const rows: (string | number)[][] = [];
  let [peerMax, reloadMin, aboveBound] = [0, Number.POSITIVE_INFINITY, 0];
  for (const [from, to] of CASES) {
    const running: PlacedReplica[] = place(from, [], site).replicas;
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
  const { sweep, stayed, uniform } = flipped(quick);
  const at = (seconds: number) => sweep.find(({ switchS }) => switchS === seconds)?.latency.p99 ?? Number.NaN;
  return {
    title: 'Switching (Algorithm 2, Figure 13)',
    rows: [
      row('longest switch by transfer between GPUs', 's', peerMax, { paper: 10, band: [0, 10] }),
      row('shortest switch by reload', 's', reloadMin, { paper: 50, band: [40, 200] }),
      row('greedy transfer over the bound of the linear program, worst', '×', aboveBound, { band: [1, 2.5] }),
      row('a mix that flips (made): P99 of what ran before it over ours, switch of 10 s', '×', stayed / at(10), {
        band: [1.2, 10],
        miss: { band: [0.95, 1.2], reason: NO_SWITCH },
      }),
      row('the same, of the best uniform in hindsight', '×', uniform / at(10)),
      row('the same, ours at a switch of 50 s over one of 10 s', '×', at(50) / at(10), {
        paper: 1.17,
        share: 0.1,
        miss: {
          band: [0.95, 4],
          reason: NO_SWITCH,
        },
      }),
      row(
        'the same, ours over what ran before it, at the worst switching time',
        '×',
        Math.max(...sweep.map(({ latency }) => latency.p99)) / stayed,
        { band: [0, 1.1] },
      ),
    ],
    verdicts: [],
    text: [
      table(['switch', 'transfer s', 'reload s', 'greedy bytes s', 'bound s', 'fullest link'], rows),
      table(
        ['a mix that flips: seconds of a switch', 'P99 s', 'mean s', 'switches', 'in minute'],
        sweep.map(({ switchS, latency, switches, slots }) => [
          switchS,
          latency.p99.toFixed(1),
          latency.mean.toFixed(1),
          switches,
          slots.flatMap(({ slot, switched }) => (switched ? [slot] : [])).join(', '),
        ]),
      ),
    ].join('\n\n'),
    pictures: [
      [
        'oserve-switch-cost',
        chartsSvg([
          {
            title: 'A mix that flips (made): P99 by what a switch costs',
            x: 'seconds of a switch',
            y: 'P99, s',
            series: [
              { name: 'ours', points: sweep.map(({ switchS, latency }) => [switchS, latency.p99] as const) },
              { name: 'what ran before the flip', points: sweep.map(({ switchS }) => [switchS, stayed] as const) },
              { name: 'best uniform in hindsight', points: sweep.map(({ switchS }) => [switchS, uniform] as const) },
            ],
          },
        ]),
      ],
    ],
  };
}

const text = (plan: DeploymentPlan) =>
  plan.map(({ shape, replicas }) => `${replicas}×${shape.tp}.${shape.pp}`).join('+');

/** Two mixes of Azure's requests, one after the other. */
function flipped(quick: boolean) {
  const setup = flipSetup();
  const mean = setup.demand.map((_, j) => setup.mixes.reduce((sum, mix) => sum + (mix[j] ?? 0) / 2, 0));
  return {
    sweep: (quick ? [0, 10, 50] : [0, 10, 20, 50, 80]).map((switchS) => ({
      switchS,
      ...runOurs(setup, { ...knowing(setup), switchS }),
    })),
    stayed: runOurs(setup, { ...knowing(setup), fixedPlan: true }).latency.p99,
    uniform: bestStatic({ ...setup, demand: mean }).latency.p99,
  };
}

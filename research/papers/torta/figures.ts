import type { HardwareCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import { objectiveS } from '../../regions/macro/objective.ts';
import { loadHardware } from '../../regions/world/hardware.ts';
import { loadTopology, TOPOLOGY_IDS } from '../../regions/world/topology.ts';
import type { Band, Row } from '../rows.ts';
import { claim } from './claims.ts';
import { againstBest, type Compared, SETTINGS, type Setting } from './comparison.ts';
import { activation, type Measure, OURS, type Run } from './experiment.ts';
import { change, interval } from './statistics.ts';

/** What the paper gives of a topology: nodes, milliseconds between two, and results of its scheduler. */
const PAPER: Readonly<
  Record<string, { nodes: number; ms: number; responseS: number; balance: number; powerUsd?: number }>
> = {
  abilene: { nodes: 12, ms: 25, responseS: 16.39, balance: 0.765 },
  polska: { nodes: 12, ms: 45, responseS: 19.19, balance: 0.745 },
  gabriel25: { nodes: 25, ms: 80, responseS: 17.58, balance: 0.755, powerUsd: 10_700 },
  cost266: { nodes: 32, ms: 150, responseS: 19.31, balance: 0.743, powerUsd: 11_100 },
};

const percent = (share: number) => 100 * share;
const atMost = (most: number): { band: Band } => ({ band: [-100, most] });

/** Table 1: topologies and servers; Figure 3: seconds of switching. Our inputs against the paper's. */
export function setUpRows(catalogue: HardwareCatalogue): Row[] {
  const rows = TOPOLOGY_IDS.flatMap((id) => {
    const { latencyS } = loadTopology(id);
    const apart = latencyS.flatMap((line, i) => line.filter((_, j) => i !== j));
    const paper = PAPER[id];
    if (paper === undefined) return [];
    const name = id === 'cost266' ? 'Table 1: regions of Cost2' : 'Table 1: regions';
    return [
      claim(name, id, 'regions', latencyS.length, { paper: paper.nodes, share: 0 }),
      claim('Table 1: mean latency', id, 'ms', 1e3 * interval(apart).mean, { paper: paper.ms, share: 0.01 }),
    ];
  });
  const { migrationS, switchS, kinds } = loadHardware(catalogue);
  const [asleep = 0, waking = 0, idle = 0, switching = 0, busy = 0] = kinds[0]?.watts ?? [];
  return [
    ...rows,
    claim('Figure 3a: migration of a running task', '', 's', migrationS, { paper: 30.7, share: 0.01 }),
    claim('Figure 3b: load of another model', 'V100, 7B', 's', switchS, { paper: 30, share: 0.01 }),
    claim(
      'Figure 3c: power rises from sleep over idle and loading to work',
      'the paper prints no watts',
      'yes = 1',
      asleep < idle && idle < waking && waking <= switching && switching < busy ? 1 : 0,
      { band: [1, 1] },
    ),
  ];
}

/** Figures 8 to 11 of one topology. */
export function comparisonRows(compared: Compared): Row[] {
  return [...responseRows(compared), ...costRows(compared), ...balanceRows(compared), ...partRows(compared)];
}

/** The settings whose policies were run. */
function settings({ runs }: Compared): Setting[] {
  return Object.values(SETTINGS).filter((one) => [one.ours, ...one.baselines].every((name) => runs.has(name)));
}

function relative(
  compared: Compared,
  label: string,
  of: Measure,
  allowed: { paper?: number; band: Band },
  more = false,
): Row[] {
  return settings(compared).map((setting) => {
    const { best, change } = againstBest(compared, setting, of, more);
    const detail = `${compared.topology}, against ${best}, ± ${percent(change.half).toFixed(1)}`;
    const { paper, band } = allowed;
    const given = paper === undefined ? { band } : { paper, band };
    return claim(`${label}, ${setting.name}`, detail, '%', percent(change.mean), given);
  });
}

const oursOf = ({ runs }: Compared) => runs.get(OURS) ?? [];
const mean = (own: readonly Run[], of: Measure) => interval(own.map(of)).mean;

function responseRows(compared: Compared): Row[] {
  const { topology } = compared;
  const own = oursOf(compared);
  const responseS = PAPER[topology]?.responseS;
  const done = ({ completed, arrived }: Run) => completed / Math.max(1, arrived);
  return [
    ...(responseS === undefined
      ? []
      : [
          claim(
            'Figure 8: mean response',
            topology,
            's',
            mean(own, ({ responseS: { mean: s } }) => s),
            {
              paper: responseS,
              share: 0.15,
            },
          ),
        ]),
    ...relative(compared, 'Figure 8: response', ({ responseS: { mean: s } }) => s, { paper: -15, ...atMost(-15) }),
    ...greedyRows(compared),
    ...relative(compared, 'Figure 8: P99', ({ responseS: { p99 } }) => p99, atMost(0)),
    claim('Figure 8: completed tasks, worst seed', topology, '%', percent(Math.min(...own.map(done))), {
      band: [99.9, 100],
    }),
  ];
}

/** No baseline of the paper: the quickest server of all regions by the state of this moment. */
function greedyRows({ topology, runs }: Compared): Row[] {
  const [own, theirs] = [runs.get(OURS) ?? [], runs.get(activation('latency-greedy')) ?? []];
  if (theirs.length === 0) return [];
  const measures: [string, Measure, Band][] = [
    ['response', ({ responseS: { mean: s } }) => s, [-100, 10]],
    ['cost', ({ costUsd }) => costUsd, [-100, 5]],
    ['objective (1)', objectiveS, [-100, 6]],
  ];
  return measures.map(([name, of, band]) => {
    const { mean: value, half } = change(own.map(of), theirs.map(of));
    const detail = `${topology}, ± ${percent(half).toFixed(1)}`;
    return claim(`Beyond the paper: ${name} against latency-greedy, all activate`, detail, '%', percent(value), {
      band,
    });
  });
}

function costRows(compared: Compared): Row[] {
  const { topology } = compared;
  const own = oursOf(compared);
  const power = PAPER[topology]?.powerUsd;
  return [
    ...(power === undefined
      ? []
      : [
          claim(
            'Figure 9: power cost',
            topology,
            'USD',
            mean(own, ({ costUsd }) => costUsd),
            { paper: power, share: 0.15 },
          ),
        ]),
    ...relative(compared, 'Figure 9: cost with switching', ({ costUsd }) => costUsd, { paper: -20, ...atMost(-20) }),
    claim(
      'Figure 9: switching, share of the cost',
      topology,
      '%',
      percent(mean(own, ({ overheadUsd, costUsd }) => overheadUsd / Math.max(1e-9, costUsd))),
      { band: [0, 20] },
    ),
    ...relative(compared, 'Figure 9: change of shares', ({ shareChange }) => shareChange, atMost(0)),
    ...relative(compared, 'Figure 9: objective (1)', objectiveS, atMost(0)),
  ];
}

function balanceRows(compared: Compared): Row[] {
  const { topology } = compared;
  const own = oursOf(compared);
  const paper = PAPER[topology]?.balance;
  const low: Measure = ({ balances }) => balances[Math.floor(balances.length / 10)] ?? 0;
  return [
    ...(paper === undefined
      ? []
      : [
          claim(
            'Figure 10: balance (11)',
            topology,
            '1/(1+CV)',
            mean(own, ({ balance }) => balance),
            { paper, share: 0.1 },
          ),
        ]),
    ...relative(compared, 'Figure 10: balance (11)', ({ balance }) => balance, { paper: 5, band: [4, 100] }, true),
    ...relative(compared, 'Figure 10: balance in the worst tenth of slots', low, { band: [0, 100] }, true),
  ];
}

function partRows(compared: Compared): Row[] {
  const { topology } = compared;
  const own = oursOf(compared);
  return [
    claim(
      'Figure 11: waiting',
      topology,
      's',
      mean(own, ({ waitS }) => waitS),
      { paper: 1.1, band: [0, 1.1] },
    ),
    claim(
      'Figure 11: network relative to computation',
      topology,
      '%',
      percent(mean(own, ({ networkS, computeS }) => networkS / Math.max(1e-9, computeS))),
      { paper: 1, band: [0, 2] },
    ),
  ];
}

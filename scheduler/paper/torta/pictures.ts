import { barsSvg } from '../../cli/picture.ts';
import type { Compared } from './comparison.ts';
import { type Measure, OURS, PAPER_BASELINES } from './experiment.ts';
import { interval } from './statistics.ts';

const SHOWN = [...PAPER_BASELINES, 'latency-greedy', OURS];

/** SVGs by name: Figures 8, 9 and 10, one panel per topology. */
export function pictures(found: readonly Compared[]): [name: string, svg: string][] {
  const panels = (title: string, unit: string, more: boolean, of: Measure) =>
    found.map(({ topology, runs }) => ({
      title: `${title}, ${topology}`,
      unit,
      more,
      values: SHOWN.map((name) => ({ name, value: interval((runs.get(name) ?? []).map(of)).mean })),
    }));
  return [
    ['regions-response', barsSvg(panels('Response', 's', false, ({ responseS }) => responseS.mean))],
    ['regions-cost', barsSvg(panels('Electricity', 'USD', false, ({ costUsd }) => costUsd))],
    ['regions-balance', barsSvg(panels('Balance', '1/(1+CV)', true, ({ balance }) => balance))],
  ];
}

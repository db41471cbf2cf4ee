import { RateTable } from '../../../scheduler/assignment/rate-table.ts';
import type { Shape } from '../../../scheduler/assignment/types.ts';
import { findGpu, findModel } from '../../../scheduler/catalogue/catalogue.ts';
import type { Model } from '../../../scheduler/catalogue/model.ts';
import { headsOf } from '../../../scheduler/catalogue/model.ts';
import { DEFAULT_LIMITS } from '../../../scheduler/simulator/engine-limits.ts';
import { exponential, seededRandom } from '../../../scheduler/simulator/random.ts';
import { table } from '../../../scheduler/validate/text-table.ts';
import { chartsSvg } from '../../../shared/text/svg-chart.ts';
import { plansOf } from '../../orchestration/enumerate.ts';
import { flowGuided, leastLoaded } from '../../orchestration/flow-guided.ts';
import { row, statement } from '../rows.ts';
import type { RunOptions, Section } from './section.ts';
import { catalogue, setupOf } from './setups.ts';

/**
 * Shapes as the paper counts them: at least two GPUs, tensor parallelism of at most 8 that divides the heads, any
 * number of stages.
 */
function paperShapes(model: Model, gpus: number): Shape[] {
  const found: Shape[] = [];
  for (let tp = 1; tp <= 8; tp++)
    for (let pp = 1; pp <= gpus / tp; pp++) if (tp * pp >= 2 && headsOf(model).heads % tp === 0) found.push({ tp, pp });
  return found;
}

export function searchClaims({ quick }: RunOptions): Section {
  const opt66 = findModel(catalogue, 'facebook/opt-66b');
  const llama = findModel(catalogue, 'meta-llama/Llama-2-70b-hf');
  const counted = [plansOf(paperShapes(opt66, 16), 16).length, plansOf(paperShapes(llama, 16), 16).length];
  const mixes = quick ? 60 : 500;
  const compared = compare(16, mixes);
  const times = (quick ? [8, 16, 32] : [8, 16, 24, 32, 48, 64]).map((gpus) => ({ gpus, ...timed(gpus) }));
  const last = times.at(-1);
  return {
    title: 'Deployment search (Algorithm 1, Figure 15)',
    rows: [
      row('deployments of OPT-66B on 16 GPUs', '', counted[0] ?? 0, { band: [861, 861] }),
      row('deployments of Llama-2-70B on 16 GPUs', '', counted[1] ?? 0, { band: [474, 474] }),
      row(`guided search above exhaustive, worst of ${mixes} mixes`, '%', compared.worst, { paper: 6, band: [0, 6] }),
      row('the same, mean', '%', compared.mean, { band: [0, 1.5] }),
      row('exhaustive search at 16 GPUs', 's', compared.exhaustiveS, { paper: 50, band: [0, 5] }),
      row('guided search at 16 GPUs', 's', compared.guidedS, { paper: 12, band: [0, 5] }),
      row(`guided search at ${last?.gpus} GPUs`, 's', last?.seconds ?? 0, { band: [0, 30] }),
      statement('the load of the guided search falls as GPUs are added', falls(times.map(({ load }) => load))),
    ],
    verdicts: [
      {
        claim: 'the heuristic is within 6 % of exhaustive search and takes 12 s instead of 50 s at 16 GPUs',
        verdict: 'better',
        reason: `within ${compared.worst.toFixed(1)} % over ${mixes} mixes; both take less than a second, so exhaustive search is used up to 24 GPUs`,
      },
    ],
    text: table(
      ['GPUs', 'guided s', 'plans weighed', 'load'],
      times.map(({ gpus, seconds, weighed, load }) => [gpus, seconds.toFixed(2), weighed, load.toFixed(3)]),
    ),
    pictures: [
      [
        'oserve-search-time',
        chartsSvg([
          {
            title: 'Time of the guided search',
            x: 'GPUs',
            y: 'seconds',
            series: [{ name: 'OPT-30B on H100', points: times.map(({ gpus, seconds }) => [gpus, seconds] as const) }],
          },
        ]),
      ],
    ],
  };
}

const falls = (loads: readonly number[]): boolean =>
  loads.every((load, i) => i === 0 || load <= (loads[i - 1] ?? 0) * 1.01);

/** Demands of random mixes: exponential shares of the four kinds. */
function demandOf(seed: number, kinds: number, rate: number): number[] {
  const random = seededRandom(seed);
  const shares = Array.from({ length: kinds }, () => exponential(random, 1));
  const total = shares.reduce((sum, one) => sum + one, 0);
  return shares.map((one) => (rate * one) / total);
}

function compare(gpus: number, mixes: number) {
  const { table: rates } = setupOf({ model: 'facebook/opt-30b', gpus, trace: 'azure', span: 2 });
  const plans = plansOf(
    rates.shapes.map(({ shape }) => shape),
    gpus,
  );
  let [worst, sum, exhaustiveS, guidedS] = [0, 0, 0, 0];
  for (let seed = 1; seed <= mixes; seed++) {
    const demand = demandOf(seed, rates.kinds.length, 40);
    const startedAt = performance.now();
    const best = leastLoaded(rates.shapes, plans, demand);
    const middle = performance.now();
    const found = flowGuided(rates, gpus, demand, { seed });
    exhaustiveS = Math.max(exhaustiveS, (middle - startedAt) / 1e3);
    guidedS = Math.max(guidedS, (performance.now() - middle) / 1e3);
    const above = 100 * (found.load / best.load - 1);
    worst = Math.max(worst, above);
    sum += above;
  }
  return { worst, mean: sum / mixes, exhaustiveS, guidedS };
}

/** One search on `gpus` GPUs, for the same demand. */
function timed(gpus: number): { seconds: number; weighed: number; load: number } {
  const small = setupOf({ model: 'facebook/opt-30b', gpus: 8, trace: 'azure', span: 2 }).table;
  const model = findModel(catalogue, 'facebook/opt-30b');
  const site = { model, gpu: findGpu(catalogue, 'h100'), gpus, gpusPerNode: 8 };
  const rates = new RateTable(site, small.kinds, catalogue.calibration, DEFAULT_LIMITS);
  const startedAt = performance.now();
  const { load, weighed } = flowGuided(rates, gpus, demandOf(1, rates.kinds.length, 40), { seed: 1 });
  return { seconds: (performance.now() - startedAt) / 1e3, weighed, load };
}

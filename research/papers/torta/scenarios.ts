import { accuracy, type DemandForecast, degraded, oracle, smoothed } from '../../regions/macro/forecast.ts';
import { smoothingPlanner } from '../../regions/macro/smoothing-planner.ts';
import { torta } from '../../regions/micro/torta.ts';
import { SLOT_S, type Surge, type TaskSource } from '../../regions/simulator/workload.ts';
import type { Row } from '../rows.ts';
import { claim } from './claims.ts';
import { SETTINGS } from './comparison.ts';
import { type MakePolicy, OURS, ours, POLICIES, type Run, Simulations } from './experiment.ts';
import { change, interval } from './statistics.ts';

/** Mean response over some slots of a run; seconds. */
function responseWithin({ course }: Run, from: number, to: number): number {
  const slots = course.slice(from, to);
  const sum = slots.reduce((total, one) => total + one.responseS, 0);
  return (
    sum /
    Math.max(
      1,
      slots.reduce((total, one) => total + one.completed, 0),
    )
  );
}

const ofForecast =
  (name: string, make: (source: TaskSource) => DemandForecast, aheadSlots?: number): MakePolicy =>
  (_world, source) =>
    torta({
      name,
      macro: smoothingPlanner(),
      forecast: make(source),
      ...(aheadSlots === undefined ? {} : { aheadSlots }),
    });

/** Figure 2: arrivals triple for a quarter of an hour. A foresight of 15 minutes is 20 slots. */
const SURGE: Surge = { fromSlot: 60, toSlot: 80, factor: 3 };
const SURGE_LOAD = 0.3;
const SURGE_SLOTS = 120;

export async function surge(simulations: Simulations, seeds: readonly number[]) {
  const options = { slots: SURGE_SLOTS, load: SURGE_LOAD, surges: [SURGE] };
  const runs = async (name: string, make: MakePolicy) => {
    const own: Run[] = [];
    for (const seed of seeds) own.push(await simulations.run(name, 'abilene', seed, make, options));
    return own;
  };
  const reactive = await runs('reactive', (world) =>
    torta({ name: 'reactive', macro: smoothingPlanner(), forecast: smoothed(world), aheadSlots: 0 }),
  );
  const foresight = await runs('foresight', ofForecast('foresight', oracle, 20));
  const during = (own: readonly Run[]) => own.map((one) => responseWithin(one, SURGE.fromSlot, SURGE.toSlot + 4));
  const gain = change(during(foresight), during(reactive));
  const rows: Row[] = [
    claim('Figure 2: response in a surge, reactive', 'abilene', 's', interval(during(reactive)).mean, {
      paper: 15.7,
      share: 0.15,
    }),
    claim(
      'Figure 2: foresight of 15 minutes against reactive',
      `± ${(100 * gain.half).toFixed(1)}`,
      '%',
      100 * gain.mean,
      { paper: -53.6, band: [-100, -53.6] },
    ),
    claim(
      'Figure 2: electricity with foresight of 15 minutes against reactive',
      'an hour and a half with the surge',
      '%',
      100 *
        change(
          foresight.map(({ costUsd }) => costUsd),
          reactive.map(({ costUsd }) => costUsd),
        ).mean,
      { band: [-100, 5] },
    ),
  ];
  return { rows, reactive, foresight };
}

/** Figure 4: a region fails for half an hour. */
const OUTAGE = { fromSlot: 40, toSlot: 80 };

export async function failure(simulations: Simulations, seeds: readonly number[]) {
  const outages = [{ region: 2, fromS: OUTAGE.fromSlot * SLOT_S + 7, toS: OUTAGE.toSlot * SLOT_S }];
  const found = new Map<string, Run[]>();
  const calm: number[] = [];
  const { baselines } = SETTINGS.sleep;
  for (const name of [...baselines, OURS]) {
    const own: Run[] = [];
    const make = POLICIES[name] ?? ours;
    for (const seed of seeds) {
      own.push(await simulations.run(name, 'abilene', seed, make, { slots: 120, outages }));
      if (name === OURS)
        calm.push(
          responseWithin(
            await simulations.run(name, 'abilene', seed, make, { slots: 120 }),
            OUTAGE.fromSlot,
            OUTAGE.toSlot,
          ),
        );
    }
    found.set(name, own);
  }
  const during = (name: string) =>
    (found.get(name) ?? []).map((one) => responseWithin(one, OUTAGE.fromSlot, OUTAGE.toSlot));
  const [first = ''] = baselines;
  const best = baselines.reduce<string>(
    (least, name) => (interval(during(name)).mean < interval(during(least)).mean ? name : least),
    first,
  );
  const lost = Math.max(...(found.get(OURS) ?? []).map(({ arrived, completed }) => arrived - completed));
  const rows: Row[] = [
    claim('Figure 4: tasks lost with a region, worst seed', '', 'tasks', lost, { band: [0, 0] }),
    claim(
      'Figure 4: response while the region is gone against without a failure',
      '',
      '%',
      100 * change(during(OURS), calm).mean,
      { band: [-100, 25] },
    ),
    claim(
      'Figure 4: response while the region is gone',
      `against ${best}`,
      '%',
      100 * change(during(OURS), during(best)).mean,
      { band: [-100, 5] },
    ),
  ];
  return { rows, runs: found };
}

/** Standard deviations of the logarithm of each count's error: from nearly exact to useless. */
const SIGMAS = [0, 0.15, 0.3, 0.6, 1, 1.5, 2.5] as const;

export interface AccuracyPoint {
  sigma: number;
  accuracy: number;
  responseS: number;
  costUsd: number;
}

/**
 * Figure 12: a perfect forecast that is degraded step by step. The paper: 20.5 s at 0.1, 17.5 s at 0.9, equal to its
 * best baseline at 0.5. Our baselines have the same powers.
 */
export async function accuracySweep(simulations: Simulations, seeds: readonly number[], slots: number) {
  const points: AccuracyPoint[] = [];
  for (const sigma of SIGMAS) {
    const [accuracies, responses, costs]: [number[], number[], number[]] = [[], [], []];
    for (const seed of seeds) {
      const { accuracy: own, run } = await withAccuracy(simulations, `degraded ${sigma}`, seed, slots, (into) =>
        ofForecast('degraded', (source) => measured(degraded(oracle(source), sigma, seed), source, into)),
      );
      accuracies.push(own);
      responses.push(run.responseS.mean);
      costs.push(run.costUsd);
    }
    points.push({
      sigma,
      accuracy: interval(accuracies).mean,
      responseS: interval(responses).mean,
      costUsd: interval(costs).mean,
    });
  }
  let baselineS = Number.POSITIVE_INFINITY;
  for (const name of SETTINGS.sleep.baselines) {
    const own: number[] = [];
    for (const seed of seeds)
      own.push((await simulations.run(name, 'abilene', seed, POLICIES[name] ?? ours, { slots })).responseS.mean);
    baselineS = Math.min(baselineS, interval(own).mean);
  }
  const [first, last] = [points[0], points.at(-1)];
  const rows: Row[] = [
    claim(
      'Figure 12: response with a worthless against a perfect forecast',
      points.map((point) => `${point.accuracy.toFixed(2)}: ${point.responseS.toFixed(2)} s`).join(', '),
      '%',
      100 * ((last?.responseS ?? Number.NaN) / (first?.responseS ?? Number.NaN) - 1),
      { paper: 100 * (20.5 / 17.5 - 1), share: 0.5 },
    ),
    claim(
      'Figure 12: accuracy at which the response equals the best baseline',
      `${baselineS.toFixed(2)} s`,
      'accuracy',
      crossing(points, baselineS),
      { paper: 0.5, band: [0.3, 0.7] },
    ),
  ];
  return { rows, points, baselineS };
}

/** Accuracy at which the response reaches `limitS`, between two points; 0: it is below at any accuracy; 1: never. */
export function crossing(points: readonly AccuracyPoint[], limitS: number): number {
  const rising = [...points].sort((a, b) => a.accuracy - b.accuracy);
  const at = rising.findIndex(({ responseS }) => responseS <= limitS);
  const [before, after] = [rising[at - 1], rising[at]];
  if (after === undefined) return 1;
  if (before === undefined) return 0;
  const part = (before.responseS - limitS) / (before.responseS - after.responseS);
  return before.accuracy + part * (after.accuracy - before.accuracy);
}

/** A run on Abilene, and the mean accuracy of its forecasts, which `make` adds to `into`. */
export function withAccuracy(
  simulations: Simulations,
  name: string,
  seed: number,
  slots: number,
  make: (into: number[]) => MakePolicy,
): Promise<{ run: Run; accuracy: number }> {
  return simulations.kept.get({ accuracy: name, seed, slots }, async () => {
    const accuracies: number[] = [];
    // Kept with its accuracy only: the forecasts are seen only in a run that takes place.
    const run = await new Simulations(simulations.catalogue).run(name, 'abilene', seed, make(accuracies), { slots });
    return { run, accuracy: interval(accuracies).mean };
  });
}

/** Adds the accuracy of each slot to `into`. */
export function measured(forecast: DemandForecast, source: TaskSource, into: number[]): DemandForecast {
  return {
    name: forecast.name,
    observe: (arrived) => forecast.observe(arrived),
    expected(slot, ahead) {
      const found = forecast.expected(slot, ahead);
      if (ahead === 0) into.push(accuracy(found, source.expected(slot)));
      return found;
    },
  };
}

import { lastValue, movingAverage } from '../../../scheduler/forecast/baseline-forecasts.ts';
import { chosenForecaster } from '../../../scheduler/forecast/choose-forecaster.ts';
import { ridge } from '../../../scheduler/forecast/ridge-regression.ts';
import type { Forecaster } from '../../../scheduler/forecast/types.ts';
import { mlp } from '../../forecast/mlp.ts';
import { type DemandForecast, oracle, smoothed } from '../../regions/macro/forecast.ts';
import { seriesForecast } from '../../regions/macro/series-forecast.ts';
import { smoothingPlanner } from '../../regions/macro/smoothing-planner.ts';
import { torta } from '../../regions/micro/torta.ts';
import { PoissonTasks, SLOT_S, type TaskSource } from '../../regions/simulator/workload.ts';
import type { World } from '../../regions/world/world.ts';
import type { Row } from '../rows.ts';
import { claim } from './claims.ts';
import type { Simulations } from './experiment.ts';
import { measured, withAccuracy } from './scenarios.ts';
import { interval } from './statistics.ts';

/** Methods learn from six hours of the same regions with another seed, and from nothing of the run. */
const PAST_SEED = 10_007;

function past(world: World, slots: number): number[][] {
  const source = new PoissonTasks(world, { slots, slotS: SLOT_S, seed: PAST_SEED, load: 0.55 });
  const counts = world.topology.regions.map(() => new Array<number>(slots).fill(0));
  for (let task = source.next(); task !== undefined; task = source.next()) {
    const line = counts[task.origin];
    const slot = Math.floor(task.arrivalS / SLOT_S);
    if (line !== undefined) line[slot] = (line[slot] ?? 0) + 1;
  }
  return counts;
}

/** The value of each forecaster: accuracy (12), response, cost. The MLP is the paper's predictor. */
export async function forecasterRows(
  simulations: Simulations,
  seeds: readonly number[],
  slots: number,
  quick: boolean,
): Promise<Row[]> {
  const members: Forecaster[] = [lastValue, movingAverage(5), ridge({ lags: 10 })];
  if (!quick) members.push(mlp());
  const online: Forecaster[] = [chosenForecaster];
  const made: [string, (world: World, source: TaskSource, seed: number) => DemandForecast][] = [
    ['perfect', (_world, source) => oracle(source)],
    ['exponential smoothing', (world) => smoothed(world)],
    ...members.map((member): (typeof made)[number] => [
      member.name,
      (world, _source, seed) => seriesForecast(member, world, { slotS: SLOT_S, seed, past: past(world, slots) }),
    ]),
    // Learns only from the run, as `otela-plan regions` does.
    ...online.map((member): (typeof made)[number] => [
      `${member.name}, online`,
      (world, _source, seed) => seriesForecast(member, world, { slotS: SLOT_S, seed }),
    ]),
  ];
  const rows: Row[] = [];
  let perfectS = Number.NaN;
  for (const [name, make] of made) {
    const [accuracies, responses, costs]: [number[], number[], number[]] = [[], [], []];
    for (const seed of seeds) {
      const { accuracy, run } = await withAccuracy(
        simulations,
        `forecast: ${name}`,
        seed,
        slots,
        (into) => (world, source) =>
          torta({ name, macro: smoothingPlanner(), forecast: measured(make(world, source, seed), source, into) }),
      );
      accuracies.push(accuracy);
      responses.push(run.responseS.mean);
      costs.push(run.costUsd);
    }
    const responseS = interval(responses).mean;
    if (name === 'perfect') perfectS = responseS;
    const detail = `${name}: accuracy ${interval(accuracies).mean.toFixed(3)}, ${responseS.toFixed(2)} s, ${interval(costs).mean.toFixed(2)} USD`;
    rows.push(
      claim(
        'Beyond the paper: response by forecaster against a perfect one',
        detail,
        '%',
        100 * (responseS / perfectS - 1),
        {
          band: [-2, 10],
        },
      ),
    );
  }
  return rows;
}

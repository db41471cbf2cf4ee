/** Forecasts that know future requests: bounds that no forecaster reaches. */
import type { FittedForecaster, History } from '../../../scheduler/forecast/types.ts';
import { normal, seededRandom } from '../../../scheduler/simulator/random.ts';
import type { Rehearsal } from '../../orchestration/rehearse.ts';
import { countByKind } from '../../workload/counts.ts';
import { type Setup, SLOT_S } from './setups.ts';

/** The true counts of the next slots, with a random relative error per kind and slot. */
export function foresight(setup: Setup, error: number): FittedForecaster {
  const names = setup.table.kinds.map(({ name }) => name);
  const endS = (setup.requests.arrival[setup.requests.count - 1] ?? 0) + SLOT_S;
  const { counts } = countByKind(setup.requests, setup.kinds, names, { slotS: SLOT_S, endS });
  const before = setup.before.counts[0]?.length ?? 0;
  return {
    name: 'the truth',
    forecast(history: History, horizon: number) {
      const at = (history.counts[0]?.length ?? 0) - before;
      const mean = counts.map((series, kind) =>
        Array.from({ length: horizon }, (_, step) => {
          const random = seededRandom(1 + kind * 1009 + (at + step) * 7919);
          return Math.max(0, (series[at + step] ?? series.at(-1) ?? 0) * (1 + error * normal(random)));
        }),
      );
      return { mean, low: mean, high: mean, notes: [] };
    },
  };
}

/** The next minutes, request by request. */
export function foreseen({ requests, kinds }: Setup, nowS: number, horizonS: number, most: number): Rehearsal {
  const first = requests.arrival.findIndex((at) => at >= nowS);
  const after = requests.arrival.findIndex((at) => at >= nowS + horizonS);
  const [from, to] = [first < 0 ? requests.count : first, after < 0 ? requests.count : after];
  const end = Math.min(to, from + most);
  return {
    begun: [],
    kinds: kinds.subarray(from, end),
    requests: {
      count: end - from,
      arrival: requests.arrival.subarray(from, end).map((at) => at - nowS),
      input: requests.input.subarray(from, end),
      output: requests.output.subarray(from, end),
    },
  };
}

import { type OursOptions, ours } from '../../../research/orchestration/orchestrators/ours.ts';
import { runTimeline, type TimelineSetup } from '../../../research/orchestration/timeline.ts';
import { RateTable } from '../../../scheduler/assignment/rate-table.ts';
import { findGpu, findModel, loadCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import { withDatasheetMemory } from '../../../scheduler/catalogue/datasheet-memory.ts';
import { lastValue } from '../../../scheduler/forecast/baseline-forecasts.ts';
import type { History } from '../../../scheduler/forecast/types.ts';
import { DEFAULT_LIMITS } from '../../../scheduler/simulator/engine-limits.ts';
import { exponential, seededRandom } from '../../../scheduler/simulator/random.ts';
import { requestsFromRows } from '../../../scheduler/simulator/request-arrivals.ts';
import { fitKinds } from '../../../scheduler/workload/request-kinds.ts';

const catalogue = withDatasheetMemory(loadCatalogue());

/** Long prompts with short answers, and short prompts with long answers. */
const LENGTHS = [
  { input: 1400, output: 12 },
  { input: 200, output: 300 },
] as const;

const kinds = fitKinds(
  LENGTHS.flatMap((one) => new Array(50).fill(one)),
  { most: 2, seed: 1 },
);

export function tableOf(gpus: number, model = 'facebook/opt-30b'): RateTable {
  const site = { model: findModel(catalogue, model), gpu: findGpu(catalogue, 'h100'), gpus, gpusPerNode: 8 };
  return new RateTable(site, kinds, catalogue.calibration, DEFAULT_LIMITS);
}

export const SMALL = tableOf(8);

/** Poisson arrivals; `rates(minute)` gives the requests/s of both kinds. */
export function requestsOf(minutes: number, rates: (minute: number) => readonly [number, number], seed = 1) {
  const rows: [number, number, number, number][] = [];
  for (const [j, { input, output }] of LENGTHS.entries()) {
    const random = seededRandom(seed + j);
    for (let minute = 0; minute < minutes; minute++) {
      const rate = rates(minute)[j] ?? 0;
      for (let at = exponential(random, 1 / rate); at < 60; at += exponential(random, 1 / rate))
        rows.push([minute * 60 + at, input, output, j]);
    }
  }
  rows.sort((a, b) => a[0] - b[0]);
  return {
    requests: requestsFromRows(rows.map(([at, input, output]) => [at, input, output] as const)),
    judged: Int32Array.from(rows, ([, , , kind]) => kind),
  };
}

export const EMPTY: History = { names: kinds.map(({ name }) => name), counts: kinds.map(() => []), slotS: 60 };

export const oursOf = (options: Partial<OursOptions> = {}) =>
  ours({
    table: SMALL,
    limits: DEFAULT_LIMITS,
    forecaster: lastValue.fit(EMPTY, { horizon: 3, level: 0.8, seed: 1 }),
    horizon: 3,
    switchS: () => 8,
    margin: 0.1,
    confirm: 1,
    initial: [5, 5],
    ...options,
  });

export const timeline = (
  of: Pick<TimelineSetup, 'requests' | 'judged' | 'orchestrator'> & Partial<TimelineSetup>,
): ReturnType<typeof runTimeline> =>
  runTimeline({ table: SMALL, limits: DEFAULT_LIMITS, slotS: 60, kvBytesPerS: 25e9, ...of });

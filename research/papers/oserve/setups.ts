import { balance } from '../../../scheduler/assignment/demand-assignment.ts';
import { RateTable } from '../../../scheduler/assignment/rate-table.ts';
import { findGpu, findModel, loadCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import { withDatasheetMemory } from '../../../scheduler/catalogue/datasheet-memory.ts';
import type { Model } from '../../../scheduler/catalogue/model.ts';
import type { History } from '../../../scheduler/forecast/types.ts';
import { DEFAULT_LIMITS } from '../../../scheduler/simulator/engine-limits.ts';
import type { Requests } from '../../../scheduler/simulator/request-arrivals.ts';
import { fitKinds, type KindLengths, kindClassifier } from '../../../scheduler/workload/request-kinds.ts';
import type { DeploymentPlan } from '../../orchestration/deployment-plan.ts';
import { uniformPlans } from '../../orchestration/exhaustive.ts';
import { countByKind } from '../../workload/counts.ts';
import { azureSpan, type Span, type SpanOptions, serveGenSpan } from './traces.ts';

export const SLOT_S = 60;
/** Mean load of the best single deployment over a span: minutes above it overflow, as in the paper's figures. */
const STATIC_LOAD = 0.8;
/** Largest ratio of the history's load to the span's. */
const PAST_LOAD_MAX = 2;
/** Kinds of the paper (§4.1). */
const KINDS = 4;
/** Most tokens of a response: the traces' 99th percentile is below it. */
const OUTPUT_MAX = 512;

export const catalogue = withDatasheetMemory(loadCatalogue());

export type TraceName = 'azure' | 'servegen';

/** The six spans of each trace, seconds from its start, and the seconds before them from which forecasts may learn. */
const SPANS: Record<TraceName, { fromS: number; toS: number; beforeS: number }[]> = {
  azure: Array.from({ length: 6 }, (_, i) => ({ fromS: i * 580, toS: (i + 1) * 580, beforeS: i * 580 })),
  // Day five, about every four hours: at noon no client is recorded.
  servegen: [0, 4, 8, 11, 16, 20].map((hour) => {
    const fromS = 5 * 86_400 + hour * 3600;
    return { fromS, toS: fromS + 600, beforeS: 3600 };
  }),
};

/** One experiment: a model on GPUs and the requests of one span. */
export interface Setup {
  name: string;
  table: RateTable;
  requests: Requests;
  senders: Int32Array;
  /** The true kind of each request. */
  kinds: Int32Array;
  /** Minutes before the span, by kind, and their requests. */
  before: History;
  past: { lengths: KindLengths[]; senders: Int32Array };
  /** Mean requests/s by kind over the span. */
  demand: number[];
  seed: number;
}

export interface SetupOf {
  model: string;
  gpus: number;
  trace: TraceName;
  span: number;
  seed?: number;
  load?: number;
}

export function setupOf({ model: name, gpus, trace, span: number, seed = 1, load = STATIC_LOAD }: SetupOf): Setup {
  const model = findModel(catalogue, name);
  const { fromS, toS, beforeS } = SPANS[trace][number] ?? { fromS: 0, toS: 0, beforeS: 0 };
  const draw = (from: number, to: number, scale: number): Span => spanOf(trace, model, { from, to, scale, seed });
  // Kinds are those of the history; the first span of a trace has no history and uses its own.
  const first = draw(fromS, toS, 1);
  const pastFirst = beforeS > 0 ? draw(fromS - beforeS, fromS, 1) : first;
  const fitted = fitKinds(lengthsOf(pastFirst.requests), { most: KINDS, seed });
  const table = new RateTable(
    { model, gpu: findGpu(catalogue, 'h100'), gpus, gpusPerNode: 8 },
    fitted,
    catalogue.calibration,
    DEFAULT_LIMITS,
  );
  // Otherwise a span after hours of much higher load would be scaled until its history does not fit into memory.
  const loadOf = (of: Requests, seconds: number) => bestUniformLoad(table, gpus, meanDemand(table, of, seconds));
  const pastLoad = beforeS > 0 ? loadOf(pastFirst.requests, beforeS) : 0;
  const scale = load / Math.max(loadOf(first.requests, toS - fromS), pastLoad / PAST_LOAD_MAX);
  const { requests, senders } = draw(fromS, toS, scale);
  const past = beforeS > 0 ? draw(fromS - beforeS, fromS, scale) : undefined;
  const names = fitted.map((kind) => kind.name);
  const classify = kindClassifier(fitted);
  const kindsOf = (of: Requests) => Int32Array.from(lengthsOf(of), classify);
  return {
    name: `${model.id.split('/').at(-1)} on ${gpus} H100, ${trace} span ${number + 1}`,
    table,
    requests,
    senders,
    kinds: kindsOf(requests),
    before:
      past === undefined
        ? { names, counts: names.map(() => []), slotS: SLOT_S }
        : countByKind(past.requests, kindsOf(past.requests), names, {
            slotS: SLOT_S,
            // An incomplete last slot would look like a drop of the demand.
            endS: Math.floor(beforeS / SLOT_S) * SLOT_S,
          }),
    past: { lengths: lengthsOf((past ?? first).requests), senders: (past ?? first).senders },
    demand: meanDemand(table, requests, toS - fromS),
    seed,
  };
}

function spanOf(trace: TraceName, model: Model, of: { from: number; to: number; scale: number; seed: number }): Span {
  const context = model.context || 4096;
  const options: SpanOptions = {
    fromS: of.from,
    toS: of.to,
    inputMax: context - OUTPUT_MAX - 1,
    outputMax: OUTPUT_MAX,
    scale: of.scale,
    seed: of.seed,
  };
  return trace === 'azure' ? azureSpan(options) : serveGenSpan('m-mid', options);
}

export function lengthsOf(requests: Requests): KindLengths[] {
  return Array.from({ length: requests.count }, (_, i) => ({
    input: requests.input[i] ?? 1,
    output: requests.output[i] ?? 1,
  }));
}

function meanDemand(table: RateTable, requests: Requests, seconds: number): number[] {
  const demand = table.kinds.map(() => 0);
  const classify = kindClassifier(table.kinds);
  for (const lengths of lengthsOf(requests)) {
    const kind = classify(lengths);
    demand[kind] = (demand[kind] ?? 0) + 1 / seconds;
  }
  return demand;
}

export function planLoad(table: RateTable, plan: DeploymentPlan, demand: readonly number[]): number {
  const rates = plan.map(({ shape }) => table.of(shape).rates);
  return balance({ rates, replicas: plan.map(({ replicas }) => replicas), demand }).load;
}

export const uniformsOf = (table: RateTable, gpus: number): DeploymentPlan[] =>
  uniformPlans(
    table.shapes.map(({ shape }) => shape),
    gpus,
    table.site,
  );

function bestUniformLoad(table: RateTable, gpus: number, demand: readonly number[]): number {
  return Math.min(...uniformsOf(table, gpus).map((plan) => planLoad(table, plan, demand)));
}

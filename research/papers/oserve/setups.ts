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
import { planAssignment } from '../../orchestration/plan-assignment.ts';
import { judgeAtArrival, kindsAsJudged } from '../../workload/arrival.ts';
import { countByKind } from '../../workload/counts.ts';
import { azureByMinute, type DrawnOptions, fileByMinute, type Span, serveGenSpan } from './traces.ts';

export const SLOT_S = 60;
/** Mean load of the best single deployment over a span: minutes above it overflow, as in the paper's figures. */
const STATIC_LOAD = 0.8;
/** Largest ratio of the history's load to the span's. */
const PAST_LOAD_MAX = 2;
/** Kinds of the paper (§4.1). */
const KINDS = 4;
/** A response may have this share of the model's context, and a prompt the rest. */
const RESPONSE_SHARE = 0.5;
/** Seconds of the past on which deployments are compared: as long as a span. */
const LATELY_S = 600;

export const catalogue = withDatasheetMemory(loadCatalogue());

export type TraceName = 'azure' | 'servegen';
/** One of the traces here, or `file:PATH`. */
export type TraceSource = TraceName | `file:${string}`;

/** The six spans of each trace, seconds from its start, and the seconds before them from which forecasts may learn. */
const SPANS: Record<TraceName, Window[]> = {
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
  /** The true kind of each request, and the kind as a gateway judges it at arrival. */
  kinds: Int32Array;
  judged: Int32Array;
  /** Minutes before the span, by kind, and their requests. */
  before: History;
  past: { requests: Requests; lengths: KindLengths[]; senders: Int32Array };
  /** The last minutes before the span, on which an operator chooses a deployment; undefined: nothing is recorded. */
  lately: Requests | undefined;
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

/** Seconds of a trace, and the seconds before them from which forecasts may learn. */
interface Window {
  fromS: number;
  toS: number;
  beforeS: number;
}

interface WindowOf extends Omit<SetupOf, 'span' | 'trace'> {
  trace: TraceSource;
  window: Window;
  /** Its name in tables: `span 1`. */
  part: string;
}

export function setupOf({ span, ...of }: SetupOf): Setup {
  const window = SPANS[of.trace][span];
  if (window === undefined) throw new Error(`${of.trace} has no span ${span + 1}`);
  return setupIn({ ...of, window, part: `span ${span + 1}` });
}

export function setupIn(of: WindowOf): Setup {
  const { model: name, gpus, trace, window, part, seed = 1, load = STATIC_LOAD } = of;
  const model = findModel(catalogue, name);
  const { fromS, toS, beforeS } = window;
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
  const earlier = past ?? first;
  const names = fitted.map((kind) => kind.name);
  const classify = kindClassifier(fitted);
  const kindsOf = (of: Requests) => Int32Array.from(lengthsOf(of), classify);
  return {
    name: `${model.id.split('/').at(-1)} on ${gpus} H100, ${trace.split('/').at(-1)} ${part}`,
    table,
    requests,
    senders,
    kinds: kindsOf(requests),
    judged: judgeAtArrival(
      fitted,
      past === undefined ? [] : arriving(past.requests, past.senders),
      arriving(requests, senders),
    ),
    before:
      past === undefined
        ? { names, counts: names.map(() => []), slotS: SLOT_S }
        : countByKind(past.requests, kindsOf(past.requests), names, {
            slotS: SLOT_S,
            // An incomplete last slot would look like a drop of the demand.
            endS: Math.floor(beforeS / SLOT_S) * SLOT_S,
          }),
    past: { requests: earlier.requests, lengths: lengthsOf(earlier.requests), senders: earlier.senders },
    lately: past && after(past.requests, beforeS - LATELY_S),
    demand: meanDemand(table, requests, toS - fromS),
    seed,
  };
}

interface Drawing {
  from: number;
  to: number;
  scale: number;
  seed: number;
}

const FILE = 'file:';

function drawn(trace: TraceSource, options: DrawnOptions): Span {
  if (trace === 'azure') return azureByMinute(options);
  if (trace === 'servegen') return serveGenSpan('m-mid', options);
  return fileByMinute(trace.slice(FILE.length), options);
}

/** Azure's arrivals and those of a file follow the rate of the minute, ServeGen's the published gaps of each client. */
function spanOf(trace: TraceSource, model: Model, { from, to, scale, seed }: Drawing): Span {
  const context = model.context || 4096;
  const outputMax = Math.floor(context * RESPONSE_SHARE);
  const options = { fromS: from, toS: to, inputMax: context, outputMax, scale, seed };
  const span = drawn(trace, options);
  const { input, output } = span.requests;
  const cut = input.map((tokens, i) => Math.max(1, Math.min(tokens, context - (output[i] ?? 1) - 1)));
  return { ...span, requests: { ...span.requests, input: cut } };
}

const arriving = (of: Requests, by: Int32Array) =>
  lengthsOf(of).map((one, i) => ({ ...one, sender: by[i] ?? 0, arrivalS: of.arrival[i] ?? 0 }));

/**
 * What a planner knows that sees requests only as they are judged at arrival: its kinds are these groups, with the
 * lengths that the past's requests of each group turned out to have, and it counts arrivals by group.
 */
export function asJudged(setup: Setup): Setup {
  const { table, past, before, judged, requests } = setup;
  const earlier = judgeAtArrival(table.kinds, [], arriving(past.requests, past.senders));
  const kinds = kindsAsJudged(table.kinds, past.lengths, earlier);
  const slots = before.counts[0]?.length ?? 0;
  const endS = (requests.arrival[requests.count - 1] ?? 0) + 1;
  return {
    ...setup,
    table: new RateTable(table.site, kinds, catalogue.calibration, DEFAULT_LIMITS),
    kinds: judged,
    before:
      slots === 0 ? before : countByKind(past.requests, earlier, before.names, { slotS: SLOT_S, endS: slots * SLOT_S }),
    demand: kinds.map((_, j) => judged.reduce((sum, kind) => sum + (kind === j ? 1 : 0), 0) / endS),
  };
}

/** Requests from that second on, which becomes 0. */
function after(requests: Requests, fromS: number): Requests {
  const found = requests.arrival.findIndex((at) => at >= fromS);
  const first = found < 0 ? requests.count : found;
  return {
    count: requests.count - first,
    arrival: requests.arrival.slice(first).map((at) => at - Math.max(0, fromS)),
    input: requests.input.slice(first),
    output: requests.output.slice(first),
  };
}

export function lengthsOf(requests: Requests): KindLengths[] {
  return Array.from({ length: requests.count }, (_, i) => ({
    input: requests.input[i] ?? 1,
    output: requests.output[i] ?? 1,
  }));
}

export function meanDemand(table: RateTable, requests: Requests, seconds: number): number[] {
  const demand = table.kinds.map(() => 0);
  const classify = kindClassifier(table.kinds);
  for (const lengths of lengthsOf(requests)) {
    const kind = classify(lengths);
    demand[kind] = (demand[kind] ?? 0) + 1 / seconds;
  }
  return demand;
}

export const planLoad = (table: RateTable, plan: DeploymentPlan, demand: readonly number[]): number =>
  planAssignment(table, plan, demand).load;

export const uniformsOf = (table: RateTable, gpus: number): DeploymentPlan[] =>
  uniformPlans(
    table.shapes.map(({ shape }) => shape),
    gpus,
    table.site,
  );

function bestUniformLoad(table: RateTable, gpus: number, demand: readonly number[]): number {
  return Math.min(...uniformsOf(table, gpus).map((plan) => planLoad(table, plan, demand)));
}

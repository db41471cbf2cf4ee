import { findGpu, findModel, parse } from '../catalogue/catalogue.ts';
import { PRECISIONS } from '../catalogue/precision.ts';
import { SchedulerError } from '../errors.ts';
import { demandSchema, readTrace } from '../planner/input.ts';
import { kvCapacityTokens, tpProblem } from '../roofline/deployment.ts';
import { StepModel } from '../roofline/step.ts';
import { simulate } from '../serving/cluster.ts';
import { seeded } from '../serving/random.ts';
import { type Arrivals, drawRequests, type Requests, requestsFromRows } from '../serving/requests.ts';
import { EXIT_DONE } from './exit.ts';
import {
  CATALOGUE_FLAGS,
  catalogueFrom,
  ENGINE_FLAGS,
  type Flags,
  limitsFrom,
  number,
  readFlags,
  required,
  text,
} from './flags.ts';
import { type Io, json } from './io.ts';
import { simulationText } from './show.ts';

/** Requests that one `simulate` may hold in memory. */
const REQUESTS_MAX = 5_000_000;

export const SIMULATE_FLAGS = {
  ...CATALOGUE_FLAGS,
  ...ENGINE_FLAGS,
  model: { type: 'string' },
  gpu: { type: 'string' },
  tp: { type: 'string' },
  replicas: { type: 'string' },
  weights: { type: 'string' },
  kv: { type: 'string' },
  rate: { type: 'string' },
  cv: { type: 'string' },
  input: { type: 'string' },
  output: { type: 'string' },
  duration: { type: 'string' },
  count: { type: 'string' },
  backlog: { type: 'boolean' },
  trace: { type: 'string' },
  policy: { type: 'string' },
  'prefill-gpu': { type: 'string' },
  'prefill-replicas': { type: 'string' },
  'network-gbs': { type: 'string' },
  seed: { type: 'string' },
  json: { type: 'boolean' },
} as const;

/** `otela-plan simulate`: one model on replicas of one kind. */
export function simulateCommand(argv: readonly string[], io: Io): number {
  const flags = readFlags(argv, SIMULATE_FLAGS);
  const catalogue = catalogueFrom(flags);
  const model = findModel(catalogue, required(flags, 'model'));
  const limits = limitsFrom(flags);
  const tp = number(flags, 'tp', 1, { min: 1, max: 72 });
  const seed = Math.round(number(flags, 'seed', 1));
  const group = (gpuName: string, replicas: number) => {
    const problem = tpProblem(model, tp);
    if (problem !== undefined) throw new SchedulerError('bad_input', problem);
    const deployment = {
      model,
      gpu: findGpu(catalogue, gpuName),
      tp,
      weights: precision(flags, 'weights'),
      kv: precision(flags, 'kv'),
    };
    if (kvCapacityTokens(deployment, limits.memoryFraction) <= 0) {
      throw new SchedulerError(
        'infeasible',
        `${model.id} does not fit ${tp} × ${deployment.gpu.id}: its weights leave no memory for a single token`,
      );
    }
    return {
      step: new StepModel(deployment, catalogue.calibration, limits),
      replicas: Math.round(replicas),
      weight: 1,
    };
  };
  const groups = [group(required(flags, 'gpu'), number(flags, 'replicas', 1, { min: 1, max: 10_000 }))];
  const apart = number(flags, 'prefill-replicas', 0, { max: 10_000 });
  const result = simulate({
    model: model.id,
    groups,
    requests: requestsOf(flags, model.id, seed),
    limits,
    policy: text(flags, 'policy') ?? 'weighted',
    seed,
    ...(apart > 0
      ? {
          prefill: {
            groups: [group(text(flags, 'prefill-gpu') ?? required(flags, 'gpu'), apart)],
            bytesPerSecond: number(flags, 'network-gbs', 25, { min: 1e-3 }) * 1e9,
          },
        }
      : {}),
  });
  io.out(flags.json === true ? json({ ...result, latencies: undefined }) : simulationText(result));
  return EXIT_DONE;
}

function precision(flags: Flags, name: string) {
  const value = text(flags, name) ?? 'bf16';
  const found = PRECISIONS.find((one) => one === value);
  if (found === undefined)
    throw new SchedulerError('usage', `--${name}: no precision is called ${value}; there are ${PRECISIONS.join(', ')}`);
  return found;
}

/** `512`, `normal:599,822`, `lognormal:599,822`. */
function lengths(value: string, name: string): unknown {
  const [, kind, mean, sd] = /^(normal|lognormal):([-\d.eE]+),([\d.eE]+)$/.exec(value) ?? [];
  if (kind !== undefined) return { kind, mean: Number(mean), sd: Number(sd) };
  const tokens = Number(value);
  if (!Number.isFinite(tokens) || tokens <= 0)
    throw new SchedulerError(
      'usage',
      `--${name} is a number of tokens or normal:MEAN,SD or lognormal:MEAN,SD, not ${JSON.stringify(value)}`,
    );
  return tokens;
}

function requestsOf(flags: Flags, model: string, seed: number): Requests {
  const trace = text(flags, 'trace');
  if (trace !== undefined) return requestsFromRows(readTrace(trace));
  const backlog = flags.backlog === true;
  const rate = backlog ? 1 : number(flags, 'rate', Number.NaN, { min: 1e-9 });
  if (!Number.isFinite(rate))
    throw new SchedulerError('usage', '--rate is needed (requests/s), or --backlog, or --trace FILE');
  const demand = parse(
    demandSchema,
    {
      model,
      rate,
      cv: number(flags, 'cv', 1),
      input: lengths(required(flags, 'input'), 'input'),
      output: lengths(required(flags, 'output'), 'output'),
    },
    'simulate',
  );
  const arrivals: Arrivals = backlog ? { kind: 'backlog' } : { kind: 'gamma', rate, cv: Math.max(0.05, demand.cv) };
  const count = text(flags, 'count');
  const durationS = number(flags, 'duration', 300);
  if (backlog || count !== undefined) {
    return drawRequests(
      { arrivals, input: demand.input, output: demand.output },
      { count: Math.round(number(flags, 'count', 1000, { min: 1, max: REQUESTS_MAX })) },
      seeded(seed),
    );
  }
  if (durationS * rate > REQUESTS_MAX)
    throw new SchedulerError('usage', `that is ${Math.round(durationS * rate)} requests; at most ${REQUESTS_MAX}`);
  return drawRequests({ arrivals, input: demand.input, output: demand.output }, { durationS }, seeded(seed));
}

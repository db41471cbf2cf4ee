import { writeFileSync } from 'node:fs';
import { EXIT_DONE, JSON_FLAG, parseLine, UsageError } from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import { findGpu, findModel, parseAs } from '../catalogue/catalogue.ts';
import type { Model } from '../catalogue/model.ts';
import { KV_PRECISIONS, PRECISIONS, type Precision } from '../catalogue/precision.ts';
import { SchedulerError } from '../errors.ts';
import { demandSchema } from '../planner/read-input.ts';
import { deploymentProblem, type ModelDeployment } from '../roofline/model-deployment.ts';
import { type Parallelism, parallelismProblem } from '../roofline/parallelism.ts';
import { StepModel } from '../roofline/step-model.ts';
import { contextLengthProblem } from '../simulator/context-length-check.ts';
import { seededRandom } from '../simulator/random.ts';
import { type Arrivals, drawRequests, type Requests, requestsFromTrace } from '../simulator/request-arrivals.ts';
import { simulate } from '../simulator/simulate.ts';
import { POLICY_NAMES } from '../simulator/simulated-policies.ts';
import { readTrace } from '../traces/read-trace.ts';
import {
  CATALOGUE_FLAGS,
  catalogueFrom,
  ENGINE_FLAGS,
  type FlagValues,
  limitsFrom,
  numberFlag,
  requiredFlag,
  textFlag,
} from './flags.ts';
import { latencyPicture, latencySvg } from './plan-picture.ts';
import { simulationText } from './plan-text.ts';
import { prettyJson } from './pretty-json.ts';

/** Maximum number of requests of one `simulate`, because all of them are held in memory. */
const REQUESTS_MAX = 5_000_000;

export const SIMULATE_FLAGS = {
  ...CATALOGUE_FLAGS,
  ...ENGINE_FLAGS,
  model: { value: 'M', help: 'model to simulate' },
  gpu: { value: 'G', help: 'GPU of the replicas' },
  tp: { value: 'N', otherwise: '1', help: 'tensor parallelism' },
  pp: { value: 'N', otherwise: '1', help: 'pipeline parallelism' },
  dp: { value: 'N', otherwise: '1', help: 'data parallelism' },
  ep: { help: 'expert parallelism' },
  sp: { value: 'N', otherwise: '1', help: 'sequence parallelism' },
  replicas: { value: 'N', otherwise: '1', help: 'number of replicas' },
  weights: { value: PRECISIONS.join('|'), takes: PRECISIONS, help: 'precision of the weights' },
  kv: { value: 'bf16|fp8|int8', takes: ['bf16', 'fp8', 'int8'], help: 'precision of the KV cache' },
  rate: { value: 'R', help: 'requests per second' },
  cv: { value: 'N', otherwise: '1', help: 'coefficient of variation of the times between arrivals' },
  input: { value: 'L', help: 'tokens per prompt: 512, normal:599,822 or lognormal:599,822' },
  output: { value: 'L', help: 'tokens per response, in the same form' },
  duration: { value: 'S', otherwise: '300', help: 'seconds to simulate; 0: no simulation' },
  count: { value: 'N', help: 'number of requests, in place of --duration' },
  backlog: { help: 'all requests arrive at the start' },
  trace: {
    value: 'FILE',
    takes: 'file',
    help: 'trace in the format of Azure, Mooncake, BurstGPT, otela-gateway trace export, or arrival_s,input,output',
  },
  'trace-model': { value: 'NAME', help: 'only this model of the trace' },
  policy: { value: POLICY_NAMES.join('|'), takes: POLICY_NAMES, help: 'policy that chooses a replica' },
  'prefill-gpu': { value: 'G', help: 'GPU of separate prefill replicas' },
  'prefill-replicas': { value: 'N', help: 'number of prefill replicas' },
  'prefill-tp': { value: 'N', help: 'tensor parallelism of prefill replicas' },
  'network-gbs': { value: 'N', otherwise: '25', help: 'network between prefill and decode replicas, in GB/s' },
  seed: { value: 'N', otherwise: '1', help: 'random seed of the simulation' },
  svg: { value: 'FILE', takes: 'file', help: 'write a picture to this file' },
  ...JSON_FLAG,
} as const;

/** `otela-plan simulate`: one model on replicas of one kind. */
export function simulateCommand(argv: readonly string[], io: Io): number {
  const flags = parseLine(argv, SIMULATE_FLAGS).values;
  const catalogue = catalogueFrom(flags);
  const model = findModel(catalogue, requiredFlag(flags, 'model'));
  const seed = Math.round(numberFlag(flags, 'seed', 1));
  const { requests, prefixBlockTokens, note } = requestsOf(flags, model, seed);
  const limits = { ...limitsFrom(flags), ...(prefixBlockTokens > 0 ? { prefixBlockTokens } : {}) };
  if (note !== undefined) io.log(note);
  const parallelism = parallelismFrom(flags);
  const prefillTp = Math.round(numberFlag(flags, 'prefill-tp', parallelism.tp, { min: 1, max: 72 }));
  const prefillParallelism = { ...parallelism, tp: prefillTp };
  const group = (gpuName: string, replicas: number, parallelism: Parallelism) => {
    const deployment: ModelDeployment = {
      model,
      gpu: findGpu(catalogue, gpuName),
      ...parallelism,
      weights: precision(flags, 'weights', PRECISIONS, model.storage.weights),
      kv: precision(flags, 'kv', KV_PRECISIONS, model.storage.kv),
    };
    const problem = parallelismProblem(model, parallelism);
    if (problem !== undefined) throw new SchedulerError('bad_input', problem);
    const unfit = deploymentProblem(deployment, limits.memoryFraction);
    if (unfit !== undefined) throw new SchedulerError('infeasible', unfit);
    return {
      step: new StepModel(deployment, catalogue.calibration, limits),
      replicas: Math.round(replicas),
      weight: 1,
    };
  };
  const groups = [
    group(requiredFlag(flags, 'gpu'), numberFlag(flags, 'replicas', 1, { min: 1, max: 10_000 }), parallelism),
  ];
  const apart = numberFlag(flags, 'prefill-replicas', 0, { max: 10_000 });
  const result = simulate({
    model: model.id,
    groups,
    requests,
    limits,
    policy: textFlag(flags, 'policy') ?? 'weighted',
    seed,
    ...(apart > 0
      ? {
          prefill: {
            groups: [group(textFlag(flags, 'prefill-gpu') ?? requiredFlag(flags, 'gpu'), apart, prefillParallelism)],
            bytesPerSecond: numberFlag(flags, 'network-gbs', 25, { min: 1e-3 }) * 1e9,
          },
        }
      : {}),
  });
  const svg = textFlag(flags, 'svg');
  if (svg !== undefined) writeFileSync(svg, latencySvg(result));
  io.out(
    flags.json === true
      ? prettyJson({ ...result, latencies: undefined })
      : `${simulationText(result)}\n\n${latencyPicture(result)}`,
  );
  return EXIT_DONE;
}

function parallelismFrom(flags: FlagValues): Parallelism {
  const ways = (name: string) => Math.round(numberFlag(flags, name, 1, { min: 1, max: 72 }));
  return { tp: ways('tp'), pp: ways('pp'), dp: ways('dp'), ep: flags.ep === true, sp: ways('sp') };
}

function precision(flags: FlagValues, name: string, known: readonly Precision[], stored: Precision): Precision {
  const value = textFlag(flags, name) ?? stored;
  const found = known.find((one) => one === value);
  if (found === undefined) throw new UsageError(`--${name}: "${value}" is not one of ${known.join(', ')}`);
  return found;
}

/** Parses lengths: `512`, `normal:599,822`, `lognormal:599,822`. */
function lengths(value: string, name: string): unknown {
  const [, kind, mean, sd] = /^(normal|lognormal):([-\d.eE]+),([\d.eE]+)$/.exec(value) ?? [];
  if (kind !== undefined) return { kind, mean: Number(mean), sd: Number(sd) };
  const tokens = Number(value);
  if (!Number.isFinite(tokens) || tokens <= 0)
    throw new UsageError(
      `--${name} must be a number of tokens or normal:MEAN,SD or lognormal:MEAN,SD, not ${JSON.stringify(value)}`,
    );
  return tokens;
}

interface Asked {
  requests: Requests;
  prefixBlockTokens: number;
  /** Says which part of a trace was not used. */
  note?: string;
}

function requestsOf(flags: FlagValues, model: Model, seed: number): Asked {
  const path = textFlag(flags, 'trace');
  if (path === undefined) return { requests: drawnRequests(flags, model, seed), prefixBlockTokens: 0 };
  const { rows, format, prefixBlockTokens, leftOut } = readTrace(path, textFlag(flags, 'trace-model'));
  const left = leftOut === 0 ? '' : `; ${leftOut} lines skipped: failed requests or other models`;
  const note = format === 'plain' ? undefined : `${path}: ${format}, ${rows.length} requests${left}`;
  return { requests: requestsFromTrace(rows), prefixBlockTokens, ...(note === undefined ? {} : { note }) };
}

function drawnRequests(flags: FlagValues, model: Model, seed: number): Requests {
  const backlog = flags.backlog === true;
  const rate = backlog ? 1 : numberFlag(flags, 'rate', Number.NaN, { min: 1e-9 });
  if (!Number.isFinite(rate)) throw new UsageError('give --rate (requests/s), --backlog or --trace FILE');
  const demand = parseAs(
    demandSchema,
    {
      model: model.id,
      rate,
      cv: numberFlag(flags, 'cv', 1),
      input: lengths(requiredFlag(flags, 'input'), 'input'),
      output: lengths(requiredFlag(flags, 'output'), 'output'),
    },
    'simulate',
  );
  const problem = contextLengthProblem(model, demand.input, demand.output);
  if (problem !== undefined) throw new SchedulerError('bad_input', problem);
  const arrivals: Arrivals = backlog ? { kind: 'backlog' } : { kind: 'gamma', rate, cv: Math.max(0.05, demand.cv) };
  const count = textFlag(flags, 'count');
  const durationS = numberFlag(flags, 'duration', 300);
  if (backlog || count !== undefined) {
    return drawRequests(
      { arrivals, input: demand.input, output: demand.output },
      { count: Math.round(numberFlag(flags, 'count', 1000, { min: 1, max: REQUESTS_MAX })) },
      seededRandom(seed),
    );
  }
  if (durationS * rate > REQUESTS_MAX)
    throw new UsageError(
      `--duration and --rate make ${Math.round(durationS * rate)} requests; the maximum is ${REQUESTS_MAX}`,
    );
  return drawRequests({ arrivals, input: demand.input, output: demand.output }, { durationS }, seededRandom(seed));
}

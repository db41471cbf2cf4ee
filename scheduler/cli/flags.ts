import { type Flags, type ParsedFlags, UsageError } from '../../shared/command-line/index.ts';
import { findModel, type HardwareCatalogue, loadCatalogue } from '../catalogue/catalogue.ts';
import { readMeasured, withMeasured } from '../planner/read-input.ts';
import { DEFAULT_LIMITS, type SimulatedEngineLimits } from '../simulator/engine-limits.ts';
import {
  type Demand,
  OBJECTIVES,
  PARALLELISM_KINDS,
  type ParallelismKind,
  type PlanOptions,
} from '../solver/planning-problem.ts';

/** The values of a command line, by flag. */
export type FlagValues = ParsedFlags<Flags>;

export const CATALOGUE_FLAGS = {
  gpus: { value: 'FILE', repeat: true, takes: 'file', help: 'file with additional GPUs' },
  models: { value: 'FILE|NAME=config.json', repeat: true, takes: 'file', help: 'additional models' },
  calibration: { value: 'FILE', takes: 'file', help: 'output of `otela-plan calibrate`' },
} as const satisfies Flags;

export const ENGINE_FLAGS = {
  'max-sequences': { value: 'N', otherwise: '256', help: 'concurrent requests of the engine' },
  'token-budget': { value: 'N', otherwise: '8192', help: 'tokens per step of the engine' },
  'memory-fraction': { value: '0…1', otherwise: '0.9', help: 'share of GPU memory that the engine uses' },
  'prefix-hit': { value: '0…1', otherwise: '0', help: 'share of each prompt that is in the prefix cache' },
  'no-chunked-prefill': { help: 'compute each prompt in one step' },
  'prefill-first': { help: 'compute prompts before output tokens' },
  'async-scheduling': { help: 'asynchronous scheduling, as in vLLM' },
} as const satisfies Flags;

export const PLAN_FLAGS = {
  objective: {
    value: OBJECTIVES.join('|'),
    takes: OBJECTIVES,
    otherwise: 'gpus',
    help: 'what to optimize; gpus: fewest GPUs that meet the latency targets',
  },
  budget: { value: 'USD/h', help: 'maximum cost of the plan' },
  latency: { value: 'S', help: 'mean latency to meet, in seconds' },
  'time-limit': { value: 'S', otherwise: '20', help: 'maximum seconds for the solver' },
  gap: { value: '0…1', otherwise: '0.01', help: 'relative optimality gap at which the solver stops' },
  measured: { value: 'CSV', takes: 'file', help: 'file with measured throughputs' },
  planner: { value: 'FILE.ts', takes: 'file', help: 'your own planner' },
  reclaim: { help: 'allow plans that end running replicas' },
  'always-on': { value: 'MODEL', repeat: true, help: 'keep a replica of this model on a stable node' },
  parallelism: {
    value: PARALLELISM_KINDS.join('|'),
    repeat: true,
    takes: PARALLELISM_KINDS,
    help: 'parallelism of models that do not name one',
  },
  seed: { value: 'N', otherwise: '1', help: 'random seed of the simulation' },
} as const satisfies Flags;

export function textFlag(flags: FlagValues, name: string): string | undefined {
  const value = flags[name];
  return typeof value === 'string' ? value : undefined;
}

export function requiredFlag(flags: FlagValues, name: string): string {
  const value = textFlag(flags, name);
  if (value === undefined || value === '') throw new UsageError(`--${name} is required`);
  return value;
}

function list(flags: FlagValues, name: string): string[] {
  const value = flags[name];
  return Array.isArray(value) ? value.filter((one) => typeof one === 'string') : [];
}

export function numberFlag(
  flags: FlagValues,
  name: string,
  fallback: number,
  range: { min?: number; max?: number } = {},
): number {
  const value = textFlag(flags, name);
  if (value === undefined) return fallback;
  const parsed = value.trim() === '' ? Number.NaN : Number(value);
  const { min = 0, max = Number.MAX_VALUE } = range;
  if (!Number.isFinite(parsed) || parsed < min || parsed > max) {
    const upper = max === Number.MAX_VALUE ? '' : ` and at most ${max}`;
    throw new UsageError(`--${name} must be a number, at least ${min}${upper}, not ${JSON.stringify(value)}`);
  }
  return parsed;
}

export function catalogueFrom(flags: FlagValues): HardwareCatalogue {
  const calibration = textFlag(flags, 'calibration');
  const catalogue = loadCatalogue({
    gpus: list(flags, 'gpus'),
    models: list(flags, 'models'),
    ...(calibration === undefined ? {} : { calibration }),
  });
  const measured = textFlag(flags, 'measured');
  return measured === undefined ? catalogue : withMeasured(catalogue, readMeasured(measured, catalogue));
}

export function limitsFrom(flags: FlagValues): SimulatedEngineLimits {
  return {
    ...DEFAULT_LIMITS,
    maxSequences: Math.round(numberFlag(flags, 'max-sequences', DEFAULT_LIMITS.maxSequences, { min: 1, max: 100_000 })),
    tokenBudget: Math.round(numberFlag(flags, 'token-budget', DEFAULT_LIMITS.tokenBudget, { min: 1, max: 10_000_000 })),
    memoryFraction: numberFlag(flags, 'memory-fraction', DEFAULT_LIMITS.memoryFraction, { min: 0.05, max: 1 }),
    prefixHit: numberFlag(flags, 'prefix-hit', 0, { max: 1 }),
    chunkedPrefill: flags['no-chunked-prefill'] !== true,
    asyncScheduling: flags['async-scheduling'] === true,
    schedule: flags['prefill-first'] === true ? 'prefill-first' : 'mixed',
  };
}

/** Applies the flags about a workload: `--always-on MODEL`, and `--parallelism KIND` for models that name none. */
export function applyWorkloadFlags(
  flags: FlagValues,
  workload: readonly Demand[],
  catalogue: HardwareCatalogue,
): Demand[] {
  const kinds = list(flags, 'parallelism')
    .flatMap((names) => names.split(','))
    .map(parallelismKind);
  const asked = kinds.length === 0 ? workload : workload.map((demand) => ({ parallelism: kinds, ...demand }));
  return alwaysOn(flags, asked, catalogue);
}

function parallelismKind(name: string): ParallelismKind {
  const found = PARALLELISM_KINDS.find((one) => one === name);
  if (found !== undefined) return found;
  throw new UsageError(`--parallelism: "${name}" is not one of ${PARALLELISM_KINDS.join(', ')}`);
}

/** Models of `--always-on` have a replica on a stable node at all times. */
function alwaysOn(flags: FlagValues, workload: readonly Demand[], catalogue: HardwareCatalogue): Demand[] {
  const ids = new Set(list(flags, 'always-on').map((name) => findModel(catalogue, name).id));
  const unknown = [...ids].find((id) => !workload.some(({ model }) => model.id === id));
  if (unknown !== undefined) throw new UsageError(`--always-on ${unknown} is not in the workload`);
  return workload.map((demand) => (ids.has(demand.model.id) ? { ...demand, alwaysOn: true } : demand));
}

export function planOptionsFrom(
  flags: FlagValues,
  catalogue: HardwareCatalogue,
  progress: (line: string) => void,
): PlanOptions {
  const named = textFlag(flags, 'objective') ?? 'gpus';
  const objective = OBJECTIVES.find((one) => one === named);
  if (objective === undefined) throw new UsageError(`--objective: "${named}" is not one of ${OBJECTIVES.join(', ')}`);
  const measured = textFlag(flags, 'measured');
  return {
    objective,
    reclaim: flags.reclaim === true,
    limits: limitsFrom(flags),
    calibration: catalogue.calibration,
    measured: measured === undefined ? [] : readMeasured(measured, catalogue),
    timeLimitS: numberFlag(flags, 'time-limit', 20, { min: 0.1, max: 86_400 }),
    gap: numberFlag(flags, 'gap', 0.01, { max: 1 }),
    seed: Math.round(numberFlag(flags, 'seed', 1, { max: 2 ** 31 - 1 })),
    ...(textFlag(flags, 'budget') === undefined ? {} : { budget: numberFlag(flags, 'budget', 0) }),
    ...(textFlag(flags, 'latency') === undefined ? {} : { latencyS: numberFlag(flags, 'latency', 0, { min: 1e-6 }) }),
    progress,
  };
}

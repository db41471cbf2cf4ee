import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';
import { wrongUse } from '../../shared/terminal/wrong-use.ts';
import { type Catalogue, findModel, loadCatalogue } from '../catalogue/catalogue.ts';
import { nearest } from '../catalogue/nearest.ts';
import { SchedulerError } from '../errors.ts';
import { readMeasured, withMeasured } from '../planner/input.ts';
import { DEFAULT_LIMITS, type EngineLimits } from '../serving/limits.ts';
import {
  type Demand,
  OBJECTIVES,
  PARALLELISM_KINDS,
  type ParallelismKind,
  type PlanOptions,
} from '../solver/problem.ts';

export type Flags = Record<string, string | boolean | (string | boolean)[] | undefined>;

export const CATALOGUE_FLAGS = {
  gpus: { type: 'string', multiple: true },
  models: { type: 'string', multiple: true },
  calibration: { type: 'string' },
} as const satisfies ParseArgsOptionsConfig;

export const ENGINE_FLAGS = {
  'max-sequences': { type: 'string' },
  'token-budget': { type: 'string' },
  'memory-fraction': { type: 'string' },
  'prefix-hit': { type: 'string' },
  'no-chunked-prefill': { type: 'boolean' },
  'prefill-first': { type: 'boolean' },
  'async-scheduling': { type: 'boolean' },
} as const satisfies ParseArgsOptionsConfig;

export const PLAN_FLAGS = {
  objective: { type: 'string' },
  budget: { type: 'string' },
  latency: { type: 'string' },
  'time-limit': { type: 'string' },
  gap: { type: 'string' },
  measured: { type: 'string' },
  planner: { type: 'string' },
  reclaim: { type: 'boolean' },
  'always-on': { type: 'string', multiple: true },
  parallelism: { type: 'string', multiple: true },
  seed: { type: 'string' },
} as const satisfies ParseArgsOptionsConfig;

/** Unknown flags are named with the nearest known one. */
export function readFlags(argv: readonly string[], options: ParseArgsOptionsConfig): Flags {
  const known = Object.keys(options);
  for (const word of argv) {
    const name = /^--([^=]+)/.exec(word)?.[1];
    if (name !== undefined && !known.includes(name)) {
      throw new SchedulerError('usage', `unknown flag --${name}; nearest: --${nearest(name, known, 1)[0] ?? ''}`);
    }
  }
  try {
    return parseArgs({ args: [...argv], options, strict: true, allowPositionals: false }).values;
  } catch (cause) {
    throw new SchedulerError('usage', wrongUse(cause) ?? String(cause), { cause });
  }
}

export function text(flags: Flags, name: string): string | undefined {
  const value = flags[name];
  return typeof value === 'string' ? value : undefined;
}

export function required(flags: Flags, name: string): string {
  const value = text(flags, name);
  if (value === undefined || value === '') throw new SchedulerError('usage', `--${name} is needed`);
  return value;
}

export function list(flags: Flags, name: string): string[] {
  const value = flags[name];
  return Array.isArray(value) ? value.filter((one) => typeof one === 'string') : [];
}

export function number(
  flags: Flags,
  name: string,
  fallback: number,
  range: { min?: number; max?: number } = {},
): number {
  const value = text(flags, name);
  if (value === undefined) return fallback;
  const parsed = value.trim() === '' ? Number.NaN : Number(value);
  const { min = 0, max = Number.MAX_VALUE } = range;
  if (!Number.isFinite(parsed) || parsed < min || parsed > max) {
    const upper = max === Number.MAX_VALUE ? '' : ` and at most ${max}`;
    throw new SchedulerError(
      'usage',
      `--${name} must be a number, at least ${min}${upper}, not ${JSON.stringify(value)}`,
    );
  }
  return parsed;
}

export function catalogueFrom(flags: Flags): Catalogue {
  const calibration = text(flags, 'calibration');
  const catalogue = loadCatalogue({
    gpus: list(flags, 'gpus'),
    models: list(flags, 'models'),
    ...(calibration === undefined ? {} : { calibration }),
  });
  const measured = text(flags, 'measured');
  return measured === undefined ? catalogue : withMeasured(catalogue, readMeasured(measured, catalogue));
}

export function limitsFrom(flags: Flags): EngineLimits {
  return {
    ...DEFAULT_LIMITS,
    maxSequences: Math.round(number(flags, 'max-sequences', DEFAULT_LIMITS.maxSequences, { min: 1, max: 100_000 })),
    tokenBudget: Math.round(number(flags, 'token-budget', DEFAULT_LIMITS.tokenBudget, { min: 1, max: 10_000_000 })),
    memoryFraction: number(flags, 'memory-fraction', DEFAULT_LIMITS.memoryFraction, { min: 0.05, max: 1 }),
    prefixHit: number(flags, 'prefix-hit', 0, { max: 1 }),
    chunkedPrefill: flags['no-chunked-prefill'] !== true,
    asyncScheduling: flags['async-scheduling'] === true,
    schedule: flags['prefill-first'] === true ? 'prefill-first' : 'mixed',
  };
}

/** A workload with what flags say of it: `--always-on MODEL`, and `--parallelism KIND` for models that name none. */
export function asFlagged(flags: Flags, workload: readonly Demand[], catalogue: Catalogue): Demand[] {
  const kinds = list(flags, 'parallelism')
    .flatMap((names) => names.split(','))
    .map(parallelismKind);
  const asked = kinds.length === 0 ? workload : workload.map((demand) => ({ parallelism: kinds, ...demand }));
  return alwaysOn(flags, asked, catalogue);
}

function parallelismKind(name: string): ParallelismKind {
  const found = PARALLELISM_KINDS.find((one) => one === name);
  if (found !== undefined) return found;
  throw new SchedulerError('usage', `--parallelism: there is no ${name}; there are ${PARALLELISM_KINDS.join(', ')}`);
}

/** Models of `--always-on` have a replica on a stable node at all times. */
function alwaysOn(flags: Flags, workload: readonly Demand[], catalogue: Catalogue): Demand[] {
  const ids = new Set(list(flags, 'always-on').map((name) => findModel(catalogue, name).id));
  const unknown = [...ids].find((id) => !workload.some(({ model }) => model.id === id));
  if (unknown !== undefined) throw new SchedulerError('usage', `--always-on ${unknown} is not in the workload`);
  return workload.map((demand) => (ids.has(demand.model.id) ? { ...demand, alwaysOn: true } : demand));
}

export function planOptionsFrom(flags: Flags, catalogue: Catalogue, progress: (line: string) => void): PlanOptions {
  const named = text(flags, 'objective') ?? 'gpus';
  const objective = OBJECTIVES.find((one) => one === named);
  if (objective === undefined)
    throw new SchedulerError('usage', `no objective is called ${named}; there are ${OBJECTIVES.join(', ')}`);
  const measured = text(flags, 'measured');
  return {
    objective,
    reclaim: flags.reclaim === true,
    limits: limitsFrom(flags),
    calibration: catalogue.calibration,
    measured: measured === undefined ? [] : readMeasured(measured, catalogue),
    timeLimitS: number(flags, 'time-limit', 20, { min: 0.1, max: 86_400 }),
    gap: number(flags, 'gap', 0.01, { max: 1 }),
    seed: Math.round(number(flags, 'seed', 1, { max: 2 ** 31 - 1 })),
    ...(text(flags, 'budget') === undefined ? {} : { budget: number(flags, 'budget', 0) }),
    ...(text(flags, 'latency') === undefined ? {} : { latencyS: number(flags, 'latency', 0, { min: 1e-6 }) }),
    progress,
  };
}

import * as z from 'zod';
import { findGpu, findModel, type HardwareCatalogue, parseAs, readJson, readTextFile } from '../catalogue/catalogue.ts';
import { opaqueModel } from '../catalogue/model.ts';
import { KV_PRECISIONS, PRECISIONS } from '../catalogue/precision.ts';
import { SchedulerError } from '../errors.ts';
import { parallelismSchema } from '../roofline/parallelism-schema.ts';
import { contextLengthProblem } from '../simulator/context-length-check.ts';
import { LENGTH_MAX, type LengthDistribution } from '../simulator/length-distribution.ts';
import {
  CLASSES,
  type Demand,
  type MeasuredCapacity,
  PARALLELISM_KINDS,
  type Placement,
  type Pool,
  TIERS,
} from '../solver/planning-problem.ts';

const tokens = z.number().finite().positive().max(LENGTH_MAX);

/** A number of tokens: constant, or a distribution. */
const lengthsSchema = z.union([
  tokens.transform((mean): LengthDistribution => ({ kind: 'constant', mean })),
  z
    .strictObject({
      kind: z.enum(['normal', 'lognormal']).default('lognormal'),
      mean: z.number().finite().min(-10_000_000).max(10_000_000),
      sd: z.number().finite().nonnegative().max(10_000_000),
      min: z.number().int().positive().default(1),
    })
    .transform(({ kind, mean, sd, min }, context): LengthDistribution => {
      if (kind === 'normal') return { kind, mean, sd, min };
      if (mean <= 0) context.addIssue({ code: 'custom', message: 'mean must be above 0' });
      return { kind, mean, sd };
    }),
  z
    .strictObject({ samples: z.array(tokens).min(1).max(1_000_000) })
    .transform(({ samples }): LengthDistribution => ({ kind: 'samples', values: samples })),
]);

/**
 * A rate outside these bounds, one request in 11 days or ten million a second, is a mistake in a unit. It would also
 * break the solver's arithmetic.
 */
export const isRate = (rate: number): boolean => rate === 0 || (rate >= 1e-6 && rate <= 1e7);
export const RATE_WORDS = 'a rate must be 0 or between 0.000001 and 10,000,000 requests/s';

const inventorySchema = z.strictObject({
  about: z.string().optional(),
  pools: z
    .array(
      z.strictObject({
        id: z.string().min(1).max(128).optional(),
        gpu: z.string().min(1).max(128),
        nodes: z.number().int().min(1).max(10_000),
        gpus_per_node: z.number().int().min(1).max(72).optional(),
        usd_hour: z.number().finite().nonnegative().optional(),
        tier: z.enum(TIERS).optional(),
        /** Share of the time that a node of this kind is available. */
        availability: z.number().min(0).max(1).optional(),
        values: z.record(z.string().regex(/^[a-z][a-z0-9_]{0,31}$/), z.string().max(256)).optional(),
      }),
    )
    .max(256),
  running: z
    .array(
      z.strictObject({
        model: z.string(),
        pool: z.string(),
        tp: z.number().int().positive(),
        spread: parallelismSchema.exactOptional(),
        replicas: z.number().int().nonnegative(),
      }),
    )
    .max(100_000)
    .default([]),
});

export const demandSchema = z.strictObject({
  model: z.string().min(1).max(256),
  /** requests/s */
  rate: z
    .number()
    .finite('a rate must be a number of requests/s')
    .nonnegative('a rate cannot be negative')
    .refine(isRate, RATE_WORDS),
  cv: z.number().finite().nonnegative().max(100).default(1),
  input: lengthsSchema,
  output: lengthsSchema,
  /** Precision of the weights; absent: as stored in the checkpoint. */
  weights: z.enum(PRECISIONS).optional(),
  kv: z.enum(KV_PRECISIONS).optional(),
  tp: z.array(z.number().int().positive().max(72)).min(1).optional(),
  /** Kinds of parallelism to try in addition to tensor parallelism. */
  parallelism: z.array(z.enum(PARALLELISM_KINDS)).optional(),
  /** Determines the latency target if there is no `latency`. */
  class: z.enum(CLASSES).optional(),
  /** Maximum mean seconds from arrival to last token. */
  latency: z.number().finite().min(1e-6).max(1e6).optional(),
  always_on: z.boolean().optional(),
});
const workloadSchema = z.strictObject({
  about: z.string().optional(),
  models: z.array(demandSchema).max(10_000),
});

export interface ClusterInventory {
  pools: Pool[];
  running: Placement[];
}

function inventoryFrom(value: unknown, catalogue: HardwareCatalogue, what: string): ClusterInventory {
  const file = parseAs(inventorySchema, value, what);
  const pools = file.pools.map((row): Pool => {
    const gpu = findGpu(catalogue, row.gpu);
    return {
      id: row.id ?? gpu.id,
      gpu: row.usd_hour === undefined ? gpu : { ...gpu, usdPerHour: row.usd_hour },
      nodes: row.nodes,
      gpusPerNode: row.gpus_per_node ?? gpu.gpusPerNode,
      ...(row.tier === undefined ? {} : { tier: row.tier }),
      ...(row.availability === undefined ? {} : { availability: row.availability }),
      ...(row.values === undefined ? {} : { values: row.values }),
    };
  });
  const ids = pools.map(({ id }) => id);
  const twice = ids.find((id, i) => ids.indexOf(id) !== i);
  if (twice !== undefined)
    throw new SchedulerError('bad_input', `${what}: two pools have the name ${twice}; give one an id`);
  return { pools, running: file.running.map((row) => ({ ...row, model: findModel(catalogue, row.model).id })) };
}

/** Converts a row of a workload. */
function demandFrom(
  { tp, parallelism, class: requestClass, latency, always_on, weights, kv, ...row }: z.infer<typeof demandSchema>,
  catalogue: HardwareCatalogue,
  what: string,
): Demand {
  const model = findModel(catalogue, row.model);
  const problem = contextLengthProblem(model, row.input, row.output);
  if (problem !== undefined) throw new SchedulerError('bad_input', `${what}: ${problem}`);
  return {
    ...row,
    model,
    weights: weights ?? model.storage.weights,
    kv: kv ?? model.storage.kv,
    ...(tp === undefined ? {} : { tp }),
    ...(parallelism === undefined ? {} : { parallelism }),
    ...(requestClass === undefined ? {} : { class: requestClass }),
    ...(latency === undefined ? {} : { latencyS: latency }),
    ...(always_on === undefined ? {} : { alwaysOn: always_on }),
  };
}

function workloadFrom(value: unknown, catalogue: HardwareCatalogue, what: string): Demand[] {
  return parseAs(workloadSchema, value, what).models.map((row) => demandFrom(row, catalogue, what));
}

export const readInventory = (path: string, catalogue: HardwareCatalogue) =>
  inventoryFrom(readJson(path), catalogue, path);
export const readWorkload = (path: string, catalogue: HardwareCatalogue) =>
  workloadFrom(readJson(path), catalogue, path);

/** Reads lines of `model,gpu,tp,requests_per_s`. */
export function readMeasured(path: string, catalogue: HardwareCatalogue): MeasuredCapacity[] {
  const lines = readTextFile(path)
    .split(/\r?\n/)
    .filter((line) => line.trim() !== '' && !line.startsWith('#'));
  const header = lines
    .shift()
    ?.split(',')
    .map((cell) => cell.trim());
  if (header?.join(',') !== 'model,gpu,tp,requests_per_s') {
    throw new SchedulerError('bad_input', `${path}: the first line must be model,gpu,tp,requests_per_s`);
  }
  return lines.map((line, i) => {
    const [model = '', gpu = '', tp = '', rate = ''] = line.split(',').map((cell) => cell.trim());
    const row = { tp: Number(tp), rate: Number(rate) };
    if (!Number.isInteger(row.tp) || row.tp < 1 || !(row.rate > 0) || !Number.isFinite(row.rate)) {
      throw new SchedulerError(
        'bad_input',
        `${path}: row ${i + 1} needs a parallelism and a positive number of requests/s: ${line.slice(0, 120)}`,
      );
    }
    return { model: knownId(catalogue, model), gpu: findGpu(catalogue, gpu).id, ...row };
  });
}

/**
 * Id of a model in the catalogue. A name that the catalogue lacks is returned unchanged: such a model is planned only
 * by measurements.
 */
function knownId(catalogue: HardwareCatalogue, name: string): string {
  try {
    return findModel(catalogue, name).id;
  } catch (error) {
    if (error instanceof SchedulerError && error.code === 'unknown_model' && name !== '') return name;
    throw error;
  }
}

/** Returns the catalogue with an added model for each measured name that it lacks. */
export function withMeasured(catalogue: HardwareCatalogue, measured: readonly MeasuredCapacity[]): HardwareCatalogue {
  const known = new Set(catalogue.models.map(({ id }) => id));
  const names = new Set(measured.map(({ model }) => model).filter((id) => !known.has(id)));
  return names.size === 0 ? catalogue : { ...catalogue, models: [...catalogue.models, ...[...names].map(opaqueModel)] };
}

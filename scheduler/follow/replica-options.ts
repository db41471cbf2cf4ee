/** The options of a model on the nodes of the network, and the rate at which each option serves each kind. */
import { readFileSync } from 'node:fs';
import * as z from 'zod';
import { errorText } from '../../shared/text/error-text.ts';
import { RateTable } from '../assignment/rate-table.ts';
import type { Calibration } from '../catalogue/calibration.ts';
import { parseAs } from '../catalogue/catalogue.ts';
import type { Model } from '../catalogue/model.ts';
import { SchedulerError } from '../errors.ts';
import { gpusOf, type Parallelism } from '../roofline/parallelism.ts';
import type { SimulatedEngineLimits } from '../simulator/engine-limits.ts';
import type { Pool } from '../solver/planning-problem.ts';
import type { ReplicaPlace } from '../solver/replica-place.ts';
import type { FittedKind } from '../workload/request-kinds.ts';
import type { FollowedPool, ReplicaOption } from './follow-problem.ts';

const ratesSchema = z.strictObject({
  rates: z
    .array(
      z.strictObject({
        model: z.string().min(1).max(256),
        /** Class of GPU in the catalogue; absent: every GPU. */
        gpu: z.string().min(1).max(64).optional(),
        tp: z.number().int().positive().default(1),
        pp: z.number().int().positive().default(1),
        /** Rates of one replica that always has requests waiting, tokens/s. */
        prompt_tokens_per_s: z.number().positive(),
        answer_tokens_per_s: z.number().positive(),
      }),
    )
    .min(1)
    .max(1_000),
});
export type MeasuredRates = z.infer<typeof ratesSchema>['rates'];

/** @throws SchedulerError bad_input */
export function readRates(path: string): MeasuredRates {
  try {
    return parseAs(ratesSchema, JSON.parse(readFileSync(path, 'utf8')), path).rates;
  } catch (cause) {
    if (cause instanceof SchedulerError) throw cause;
    throw new SchedulerError('bad_input', `cannot read ${path}: ${errorText(cause)}`, { cause });
  }
}

export interface OptionContext {
  pools: readonly Pool[];
  limits: SimulatedEngineLimits;
  calibration: Calibration;
  measured: MeasuredRates;
  /** Rate tables that are kept from one slot to the next, because they take too long to compute in each slot. */
  tables: Map<string, RateTable>;
}

/** Maximum number of tables that are kept: one per model, kind of GPU and fit of the kinds. */
const TABLES_MAX = 64;

/**
 * Options of one model. If the model has measured rates, only the measured options are tried, and their rates replace
 * the catalogue's.
 */
export function replicaOptions(model: Model, kinds: readonly FittedKind[], context: OptionContext): ReplicaOption[] {
  return context.pools.flatMap((pool) => {
    const measured = context.measured.filter(
      (one) => one.model === model.id && (one.gpu === undefined || one.gpu === pool.gpu.id),
    );
    const found = measured.length > 0 ? measuredOn(measured, kinds) : simulatedOn(model, pool, kinds, context);
    return found.flatMap(({ spread, ...figures }): ReplicaOption[] => {
      const gpus = gpusOf(spread);
      if (gpus > pool.gpusPerNode || !figures.rates.some((rate) => rate > 0)) return [];
      if (pool.allows !== undefined && !pool.allows(model.id, spread)) return [];
      const place: ReplicaPlace = {
        model: model.id,
        pool: pool.id,
        tp: spread.tp,
        ...(spread.pp === undefined ? {} : { spread }),
      };
      return [{ place, gpus, ...figures }];
    });
  });
}

interface Found extends Pick<ReplicaOption, 'rates' | 'latencyS' | 'engine'> {
  spread: Parallelism;
}

function measuredOn(measured: MeasuredRates, kinds: readonly FittedKind[]): Found[] {
  return measured.map(({ tp, pp, prompt_tokens_per_s, answer_tokens_per_s }) => {
    const latencyS = kinds.map(
      ({ moments }) => moments.input.mean / prompt_tokens_per_s + moments.output.mean / answer_tokens_per_s,
    );
    return { spread: spreadOf(tp, pp), rates: latencyS.map((s) => 1 / s), latencyS };
  });
}

function simulatedOn(
  model: Model,
  pool: Pool,
  kinds: readonly FittedKind[],
  { limits, calibration, tables }: OptionContext,
): Found[] {
  if (model.opaque === true) return [];
  const key = JSON.stringify([model.id, pool.gpu.id, pool.gpusPerNode, kinds.map(({ moments }) => moments)]);
  let table = tables.get(key);
  if (table === undefined) {
    const site = { model, gpu: pool.gpu, gpus: pool.gpusPerNode, gpusPerNode: pool.gpusPerNode };
    table = new RateTable(site, kinds, calibration, limits);
    if (tables.size >= TABLES_MAX) tables.clear();
    tables.set(key, table);
  }
  const { shapes } = table;
  return shapes.map(({ shape, rates, latencyS }) => ({
    spread: spreadOf(shape.tp, shape.pp),
    rates,
    latencyS,
    engine: { step: table.step(shape), limits },
  }));
}

const spreadOf = (tp: number, pp: number): Parallelism => (pp === 1 ? { tp } : { tp, pp });

export const followedPool = ({ id, nodes, gpusPerNode, oneEngine }: Pool): FollowedPool => ({
  id,
  gpus: nodes * gpusPerNode,
  replicas: oneEngine === true ? nodes : nodes * gpusPerNode,
});

/**
 * Decides when a recipe may be tried again on a cluster. Without a back-off, a broken recipe would be submitted in a
 * loop; sites have banned users of Parsl for that (parsl #2851).
 */

import { backoffMs } from '../../shared/timing/backoff.ts';
import type { FactoryConfig, PoolConfig } from '../config/schema.ts';
import { formatMs } from '../config/value-schemas.ts';
import { allPlaces, type PlacedEngine, type PlacedModel } from './factory-world.ts';
import { type BackOff, type Memory, refusalKey, startKey } from './persisted-state.ts';

const SHORT_FIRST_MS = 15_000;
const REFUSED_FIRST_MS = 30_000;
const CANCELLED_FIRST_MS = 600_000;
const WAIT_MAX_MS = 900_000;
const REST_MAX_MS = 86_400_000;

/**
 * `failed`: the job began and its engine did not serve. `short`: the scheduler ended the job soon after its begin.
 * `cancelled`: a user or an operator ended it, not the factory. `refused`: the scheduler did not accept it.
 * `unwatched`: it ended while the factory could not observe it, so the factory does not know whether it served. That
 * does not count as a failed start, but delays the next one: a factory that dies repeatedly must not submit a broken
 * recipe each time.
 */
export type FailureKind = 'failed' | 'short' | 'cancelled' | 'refused' | 'unwatched';

interface Failure {
  model: string;
  cluster: string;
  /** The pool that refused. Only set if `kind` is `refused`. */
  pool?: Pick<PoolConfig, 'name' | 'gpu'>;
  context: string;
  reason: string;
  log_tail?: string;
}

type Guest = Pick<FactoryConfig['guest'], 'failed_starts' | 'rest'>;

/** Records a failure in `memory`. Returns a sentence for the list of decisions that says when the next start is. */
export function recordFailure(memory: Memory, kind: FailureKind, failure: Failure, guest: Guest, now: number): string {
  const { model, cluster, context, pool } = failure;
  const key = pool !== undefined ? refusalKey(model, cluster, pool) : startKey(model, cluster, context);
  const known = memory.back_offs[key];
  const before = known?.context === context ? known : undefined;
  const after: BackOff = { ...(before ?? fresh(failure.context)), reason: failure.reason.slice(0, 300) };
  const wait = (first: number, times: number, max: number) => {
    const ms = backoffMs(times - 1, { minMs: first, maxMs: max });
    after.until = Math.max(after.until, now + ms);
    return formatMs(ms);
  };
  if (failure.log_tail !== undefined) after.log_tail = failure.log_tail.slice(-2_000);
  memory.back_offs[key] = after;
  switch (kind) {
    case 'failed': {
      after.failed += 1;
      if (after.failed < guest.failed_starts)
        return `start ${after.failed} of ${guest.failed_starts} failed, next start in ${wait(SHORT_FIRST_MS, after.failed, WAIT_MAX_MS)}: ${failure.reason}`;
      after.resting = true;
      after.rests += 1;
      return `pauses for ${wait(guest.rest, after.rests, REST_MAX_MS)} after ${after.failed} failed starts: ${failure.reason}`;
    }
    case 'short':
      after.short += 1;
      return `ended too early, next start in ${wait(SHORT_FIRST_MS, after.short, WAIT_MAX_MS)}: ${failure.reason}`;
    case 'unwatched':
      after.short += 1;
      return `it is unknown whether it served, next start in ${wait(SHORT_FIRST_MS, after.short, WAIT_MAX_MS)}`;
    case 'cancelled':
      after.short += 1;
      return `was cancelled by another user or program, next start in ${wait(CANCELLED_FIRST_MS, after.short, REST_MAX_MS)}`;
    case 'refused':
      after.refused += 1;
      return `refused, trying again in ${wait(REFUSED_FIRST_MS, after.refused, WAIT_MAX_MS)}: ${failure.reason}`;
  }
}

function fresh(context: string): BackOff {
  return { context, failed: 0, short: 0, refused: 0, rests: 0, until: 0, resting: false, reason: '' };
}

/**
 * Returns the back-offs that delay a start at a place: after refusals by its pool, and after failed starts of its
 * context on its cluster. An edited recipe has a new context and therefore no back-offs.
 */
export function backOffsOf(
  memory: Memory,
  model: string,
  { cluster, pool, context }: PlacedEngine,
): { refused: BackOff | undefined; starts: BackOff | undefined } {
  const refused = memory.back_offs[refusalKey(model, cluster.id, pool)];
  return {
    refused: refused?.context === context ? refused : undefined,
    starts: memory.back_offs[startKey(model, cluster.id, context)],
  };
}

/** Clears earlier failures of a context, because a job served for longer than `short_lived`. */
export function recordRecovery(memory: Memory, model: string, cluster: string, context: string): void {
  delete memory.back_offs[startKey(model, cluster, context)];
}

/** Clears earlier refusals of a pool, because it accepted a job. */
export function recordAcceptance(memory: Memory, model: string, cluster: string, pool: PoolConfig): void {
  delete memory.back_offs[refusalKey(model, cluster, pool)];
}

/** Removes the back-offs of edited recipes, and of models and pools that are no longer in the file. */
export function forgetBackOffs(memory: Memory, models: readonly PlacedModel[]): void {
  const known = new Set(
    models.flatMap((placed) =>
      allPlaces(placed).flatMap(({ cluster, pool, context }) => [
        startKey(placed.model.id, cluster.id, context),
        refusalKey(placed.model.id, cluster.id, pool),
      ]),
    ),
  );
  for (const key of Object.keys(memory.back_offs)) if (!known.has(key)) delete memory.back_offs[key];
}

/** Builds the factory's report to its gateway. The factory also writes it to a file for `status` and `explain`. */
import {
  type ClusterReport,
  type DayPoint,
  type DecisionReport,
  EXCHANGE_WAIT_MAX_MS,
  type FactoryReport,
  JOBS_MAX,
  type JobReport,
  TEXT_MAX,
} from '../../shared/factory/factory-exchange.ts';
import { gpuClass } from '../../shared/hardware/gpu-classes.ts';
import type { PoolConfig } from '../config/schema.ts';
import { countJobs, isPending, type JobCensus } from '../decisions/job-census.ts';
import { buildModelReport } from '../decisions/model-report.ts';
import type { FailedJob, Memory } from '../decisions/persisted-state.ts';
import type { Launcher } from '../launchers/launcher.ts';
import type { RoundResult } from './run-round.ts';

/** A failed job is reported for this time. */
const FAILED_RETENTION_MS = 3_600_000;
const FAILED_MAX = 50;

interface ReportInput {
  result: RoundResult;
  memory: Memory;
  launchers: ReadonlyMap<string, Launcher>;
  decisions: readonly DecisionReport[];
  now: number;
}

export function buildFactoryReport({ result, memory, launchers, decisions, now }: ReportInput): FactoryReport {
  const { world, drains } = result;
  const seen = countJobs(memory, world, now);
  return {
    version: 1,
    factory: world.config.factory,
    config_revision: world.config.revision,
    wait_ms: Math.min(EXCHANGE_WAIT_MAX_MS, world.config.guest.every),
    models: world.models.map((placed) =>
      buildModelReport(placed, {
        census: seen,
        memory,
        clusters: world.clusters,
        wanted: result.wanted.get(placed.model.id),
        held: result.held.get(placed.model.id),
        now,
      }),
    ),
    jobs: [...jobsOf(seen, result, now), ...failedOf(memory.failed, now)].slice(0, JOBS_MAX),
    clusters: clustersOf(seen, result, launchers),
    decisions: [...decisions],
    drain: drains.slice(0, 256).map(({ session, why }) => ({ session, why: why.slice(0, TEXT_MAX) })),
  };
}

function jobsOf({ jobs }: JobCensus, { world }: RoundResult, now: number): JobReport[] {
  return jobs.map((job) => {
    const pool = world.config.clusters
      .find(({ id }) => id === job.cluster)
      ?.pools.find(({ name }) => name === job.pool);
    const known = world.clusters.get(job.cluster)?.reachable === true;
    const state =
      !known && job.state === 'pending'
        ? 'unknown'
        : job.asked !== undefined && !isPending(job)
          ? 'draining'
          : job.state;
    const reason = job.asked?.why ?? job.reason;
    return {
      cluster: job.cluster,
      id: job.id,
      model: job.model ?? job.context,
      state,
      gpus: job.gpus,
      ...(pool === undefined ? {} : { gpu: pool.gpu.slice(0, 32) }),
      since_ms: Math.max(0, now - job.since),
      ...(reason === undefined || reason === '' ? {} : { reason }),
    };
  });
}

function failedOf(failed: readonly FailedJob[], now: number): JobReport[] {
  return failed
    .filter(({ at }) => now - at < FAILED_RETENTION_MS)
    .slice(-FAILED_MAX)
    .map(({ at, ...job }) => ({ ...job, state: 'failed', since_ms: Math.max(0, now - at) }));
}

function clustersOf(
  { jobs, coming }: JobCensus,
  { world }: RoundResult,
  launchers: ReadonlyMap<string, Launcher>,
): ClusterReport[] {
  return world.config.clusters.map(({ id, launcher, pools }) => {
    const view = world.clusters.get(id);
    const ours = jobs.filter(({ cluster }) => cluster === id);
    const soon = coming.filter(({ cluster }) => cluster === id).reduce((sum, { count }) => sum + count, 0);
    const capacity = view?.reachable === true ? view.capacity : undefined;
    const idle = capacity?.reduce((sum, one) => sum + one.idle, 0);
    const reason = view?.reachable === false ? view.reason.slice(0, TEXT_MAX) : undefined;
    return {
      id,
      launcher: launchers.get(id)?.kind ?? launcher,
      reachable: view?.reachable === true,
      ...(reason === undefined ? {} : { reason }),
      pending: ours.filter(isPending).length + soon,
      running: ours.filter((job) => !isPending(job)).length,
      ...(idle === undefined ? {} : { idle_gpus: idle }),
      ...(capacity === undefined ? {} : { idle_gpus_by_class: idleByClass(capacity, pools) }),
    };
  });
}

function idleByClass(
  capacity: readonly { pool: string; idle: number }[],
  pools: readonly PoolConfig[],
): Record<string, number> {
  const idle: Record<string, number> = {};
  for (const one of capacity) {
    const gpu = gpuClass(pools.find(({ name }) => name === one.pool)?.gpu ?? '');
    idle[gpu] = (idle[gpu] ?? 0) + one.idle;
  }
  return idle;
}

/** Builds one point of the day's chart. */
export function buildDayPoint({ result, memory, now }: Pick<ReportInput, 'result' | 'memory' | 'now'>): DayPoint {
  const jobs = Object.values(memory.jobs);
  const gpus = (of: (state: string) => boolean) =>
    jobs.filter(({ state }) => of(state)).reduce((sum, one) => sum + one.gpus, 0);
  const views = [...result.world.clusters.values()];
  const idle = views
    .flatMap((view) => (view.reachable ? (view.capacity ?? []) : []))
    .reduce((sum, one) => sum + one.idle, 0);
  const waiting = [...result.world.demand.values()].reduce((sum, one) => sum + one.waiting + one.queued, 0);
  return {
    at: new Date(now).toISOString(),
    running: gpus((state) => state !== 'pending'),
    ready: gpus((state) => state === 'ready'),
    pending: gpus((state) => state === 'pending'),
    idle,
    waiting,
  };
}

/** Updates the state of each job from the lists of schedulers and the nodes at the gateway. */
import type { ListedJob } from '../../node/batch-systems/batch-system.ts';
import { DEPLOYMENT_LABEL } from '../../shared/deployment/deployment-labels.ts';
import { JOB_LABEL, jobNamePrefix, type ServingNode } from '../../shared/factory/factory-exchange.ts';
import { formatMs } from '../config/value-schemas.ts';
import { isHostName, recordHostFailure, recordHostRecovery } from './blocked-hosts.ts';
import { allPlaces, type DecisionNote, type FactoryWorld } from './factory-world.ts';
import { type FailureKind, recordFailure, recordRecovery } from './launch-back-off.ts';
import {
  contextIn,
  isSettled,
  type JobMemory,
  jobKey,
  type Memory,
  type SubmissionMemory,
  updatedMean,
} from './persisted-state.ts';

/**
 * A job that is missing in its scheduler's lists counts as ended after this time and after GONE_AFTER_LISTS lists. A
 * single list is not enough, because a restarting controller returns empty lists.
 */
const GONE_AFTER_MS = 120_000;
const GONE_AFTER_LISTS = 4;
/**
 * Replaces GONE_AFTER_LISTS for a deployment on an idle agent that was asked to end. Fewer lists suffice, because the
 * registry lists an agent until it leaves.
 */
const LEFT_AFTER_LISTS = 2;
/**
 * A running job that has served counts as lost if no gateway has had its node for this long. An agent may reconnect
 * within this time. Also the default of a recipe's `ready_within`.
 */
const LOST_AFTER_MS = 600_000;
const SUBMISSIONS_RETENTION_MS = 3_600_000;
/**
 * If the cluster has not answered for this many rounds, a job may have started, served and ended without being seen.
 * The same holds after a restart of the factory.
 */
const WATCHED_ROUNDS = 4;

/** A job that has just ended. The caller reads the end of its output. */
export interface EndedJob {
  job: JobMemory;
  how: ListedJob['ended'] | 'vanished' | 'late';
  reason?: string;
}

/** Updates the jobs in `memory`. A job of an unreachable cluster keeps its state. Returns the jobs that have ended. */
export function observeJobs(
  memory: Memory,
  world: FactoryWorld,
  now: number,
): { ended: EndedJob[]; notes: DecisionNote[] } {
  const [ended, notes]: [EndedJob[], DecisionNote[]] = [[], []];
  const nodes = nodesByJob(world);
  for (const [cluster, view] of world.clusters) {
    if (!view.reachable) continue;
    const jobs = view.jobs.filter(({ name }) => contextIn(name, world.config.factory) !== undefined);
    const listed = new Set(jobs.map(({ id }) => id));
    const watched = isWatched(memory, cluster, world, now);
    memory.listed_at[cluster] = now;
    if (!watched) for (const job of Object.values(memory.jobs)) if (job.cluster === cluster) job.unwatched = true;
    for (const submission of memory.submissions) {
      if (submission.cluster !== cluster) continue;
      submission.lists += 1;
      if (!watched) submission.unwatched = true;
    }
    for (const job of jobs) {
      const isNew = settle(memory, cluster, job);
      const key = jobKey(cluster, job.id);
      const known = memory.jobs[key];
      if (job.state === 'ended') {
        // A job that began and ended between two lists also counts as ended. Otherwise such jobs would be submitted
        // again immediately and forever.
        if (known === undefined && !isNew) continue;
        delete memory.jobs[key];
        const shown = known ?? {
          ...adoptJob(memory, world, cluster, job, now),
          ...(watched ? {} : { unwatched: true }),
        };
        ended.push({
          job: isHostName(job.host) ? { ...shown, host: job.host } : shown,
          how: job.ended ?? 'failed',
          ...(job.reason === undefined ? {} : { reason: job.reason }),
        });
      } else {
        const current = known ?? adoptJob(memory, world, cluster, job, now);
        if (known === undefined) notes.push(...adoption(current, memory));
        memory.jobs[key] = current;
        applyListing(memory, current, job, now);
      }
    }
    ended.push(...missingJobs(memory, cluster, listed, nodes, world, now));
    for (const submission of memory.submissions)
      if (submission.cluster === cluster) ended.push(...neverListed(submission, nodes, now));
  }
  for (const [key, job] of Object.entries(memory.jobs)) placeNode(memory, job, nodes.get(key), world, now);
  memory.submissions = memory.submissions.filter(({ at }) => now - at < SUBMISSIONS_RETENTION_MS);
  return { ended, notes };
}

/** Handles jobs that the cluster no longer lists. */
function missingJobs(
  memory: Memory,
  cluster: string,
  listed: ReadonlySet<string>,
  nodes: ReadonlyMap<string, ServingNode>,
  { config }: FactoryWorld,
  now: number,
): EndedJob[] {
  const isOfAgents = config.clusters.some(({ id, launcher }) => id === cluster && launcher === 'agents');
  return Object.entries(memory.jobs).flatMap(([key, job]): EndedJob[] => {
    if (job.cluster !== cluster || listed.has(job.id)) return [];
    // The job's node is connected to the gateway, so the job exists although the list lacks it.
    if (nodes.has(key)) {
      delete job.missing;
      return [];
    }
    job.missing = { since: job.missing?.since ?? now, lists: (job.missing?.lists ?? 0) + 1 };
    const hasLeft = job.asked !== undefined && isOfAgents && job.missing.lists >= LEFT_AFTER_LISTS;
    const isGone = job.missing.lists >= GONE_AFTER_LISTS && now - job.missing.since >= GONE_AFTER_MS;
    if (!hasLeft && !isGone) return [];
    delete memory.jobs[key];
    return [{ job, how: 'vanished' }];
  });
}

/**
 * Returns the key of a node's job: from the node's deployment label or its job label. Without these labels, from the
 * cluster and the job id that the agent found.
 */
function keyOfNode(node: ServingNode, { factory, clusters }: FactoryWorld['config']): string | undefined {
  const deployment = node.labels?.[DEPLOYMENT_LABEL];
  const agents = clusters.find(({ launcher }) => launcher === 'agents');
  if (deployment?.startsWith(jobNamePrefix(factory)) === true && agents !== undefined)
    return jobKey(agents.id, deployment);
  const label = node.labels?.[JOB_LABEL];
  if (label !== undefined) return label;
  const cluster = clusters.find(({ id, cluster: name }) => (name ?? id) === node.cluster);
  return cluster === undefined || node.job === undefined ? undefined : jobKey(cluster.id, node.job);
}

export function nodesByJob({ nodes, config }: FactoryWorld): Map<string, ServingNode> {
  const known = new Map<string, ServingNode>();
  for (const node of nodes ?? []) {
    const key = keyOfNode(node, config);
    const other = key === undefined ? undefined : known.get(key);
    // An agent that reconnected has two sessions for a while. Use the session that is not draining.
    if (key !== undefined && (other === undefined || other.state === 'draining')) known.set(key, node);
  }
  return known;
}

/** Returns true if the job belongs to a known submission and no list has shown it before. */
function settle(memory: Memory, cluster: string, job: ListedJob): boolean {
  const submission = memory.submissions.find((one) => one.cluster === cluster && one.name === job.name);
  if (submission === undefined || submission.seen.includes(job.id) || submission.seen.length >= 100) return false;
  submission.seen.push(job.id);
  return true;
}

/** Returns accepted jobs that no list has shown: they ended before a list arrived, or were lost. */
function neverListed(submission: SubmissionMemory, nodes: ReadonlyMap<string, ServingNode>, now: number): EndedJob[] {
  const { cluster, name, context, model, pool, gpus, ids, seen, at, unwatched } = submission;
  if (submission.outcome !== 'accepted' || !isSettled(submission, now)) return [];
  return ids.flatMap((id): EndedJob[] => {
    if (seen.includes(id) || nodes.has(jobKey(cluster, id))) return [];
    seen.push(id);
    const times = { state: 'pending' as const, since: at, seen_at: at, ...(unwatched === true && { unwatched }) };
    return [{ how: 'vanished', job: { cluster, id, name, context, model, pool, gpus, ...times } }];
  });
}

/**
 * Adds a job that has this factory's name and is not in the memory: from a known submission, or from a factory that was
 * killed before it stored the job.
 */
function adoptJob(
  memory: Memory,
  world: FactoryWorld,
  cluster: string,
  { id, name }: ListedJob,
  now: number,
): JobMemory {
  const submission = memory.submissions.find((one) => one.cluster === cluster && one.name === name);
  const context = submission?.context ?? contextIn(name, world.config.factory) ?? '';
  const found = world.models
    .flatMap((placed) => allPlaces(placed).map((place) => ({ model: placed.model.id, place })))
    .find(({ place }) => place.context === context && place.cluster.id === cluster);
  const model = submission?.model ?? found?.model;
  const pool = submission?.pool ?? found?.place.pool.name;
  return {
    cluster,
    id,
    name,
    context,
    ...(model === undefined ? {} : { model }),
    ...(pool === undefined ? {} : { pool }),
    gpus: submission?.gpus ?? found?.place.engine.gpus ?? 1,
    state: 'pending',
    since: now,
    seen_at: now,
  };
}

function adoption(job: JobMemory, memory: Memory): DecisionNote[] {
  if (memory.submissions.some(({ name }) => name === job.name)) return [];
  const of = job.model === undefined ? 'a recipe that was removed from the file' : job.model;
  return [
    {
      ...(job.model === undefined ? {} : { model: job.model }),
      text: `found job ${job.id} on ${job.cluster}, of ${of}`,
    },
  ];
}

/**
 * True if the factory has seen all jobs of the cluster since the last list. True before the first list, because there
 * was no job to miss. Also true if the last list is of the previous round, however long ago: if each sbatch takes half
 * a minute, a gap measured in time would make every job of a broken recipe unwatched, and its starts would never be
 * suspended.
 */
function isWatched(memory: Memory, cluster: string, { config, before: round }: FactoryWorld, now: number): boolean {
  const before = memory.listed_at[cluster];
  return before === undefined || before === round || now - before < WATCHED_ROUNDS * config.guest.every;
}

function applyListing(memory: Memory, job: JobMemory, { state, reason, host }: ListedJob, now: number): void {
  delete job.missing;
  delete job.unwatched;
  if (reason === undefined || state === 'running') delete job.reason;
  else job.reason = reason.slice(0, 300);
  if (state === 'pending') {
    // A requeued job starts again later.
    if (job.state !== 'pending') Object.assign(job, { state: 'pending', since: now });
    delete job.began_at;
    delete job.ready_at;
    delete job.host;
    return;
  }
  if (isHostName(host)) job.host = host;
  if (job.began_at !== undefined) return;
  job.began_at = now;
  if (job.pool !== undefined) {
    const place = jobKey(job.cluster, job.pool);
    memory.waits[place] = updatedMean(memory.waits[place], now - job.seen_at);
  }
}

function placeNode(
  memory: Memory,
  job: JobMemory,
  node: ServingNode | undefined,
  world: FactoryWorld,
  now: number,
): void {
  if (job.began_at === undefined) return;
  const state = node === undefined ? unseenState(job, world) : node.state === 'joining' ? 'loading' : node.state;
  if (state !== job.state) {
    if (state === 'ready' && job.ready_at === undefined) {
      job.ready_at = now;
      memory.loads[job.context] = updatedMean(memory.loads[job.context], now - job.began_at);
    }
    job.state = state;
    job.since = now;
  }
  const { model, cluster, host } = job;
  const served =
    job.ready_at !== undefined && job.state === 'ready' && now - job.ready_at >= world.config.guest.short_lived;
  if (served && host !== undefined) recordHostRecovery(memory, cluster, host);
  if (served && model !== undefined) recordRecovery(memory, model, cluster, job.context);
}

/**
 * Returns the state of a job without a node. If the gateway could not be queried, the state stays the same. Otherwise
 * the job does not serve.
 */
function unseenState(job: JobMemory, world: FactoryWorld): JobMemory['state'] {
  if (world.nodes === undefined && job.state !== 'pending') return job.state;
  return job.asked?.what === 'drain' ? 'draining' : 'starting';
}

/**
 * Returns the reason to cancel a job that started and does not serve in time; undefined if it may continue. Such a job
 * counts as a failed start.
 */
export function startTimeoutReason(job: JobMemory, world: FactoryWorld, now: number): string | undefined {
  if (job.began_at === undefined || job.asked !== undefined || job.state === 'ready' || world.nodes === undefined)
    return undefined;
  if (job.ready_at !== undefined) {
    const gone = job.state === 'starting' && now - job.since >= LOST_AFTER_MS;
    return gone ? `it runs, but its node has been missing at the gateway for ${formatMs(now - job.since)}` : undefined;
  }
  const recipe = world.models.find(({ model }) => model.id === job.model)?.places[0]?.recipe;
  const within = recipe?.ready_within ?? LOST_AFTER_MS;
  return now - job.began_at < within ? undefined : `its engine did not serve within ${formatMs(within)}`;
}

/** Evaluates how a job ended, and updates back-offs and means in `memory`. */
export function assessEnd(
  { job, how, reason }: EndedJob,
  logTail: string | undefined,
  memory: Memory,
  world: FactoryWorld,
  now: number,
): DecisionNote {
  const { model, cluster, context } = job;
  // A job that vanished ended when it was first missing in a list.
  const over = how === 'vanished' ? (job.missing?.since ?? now) : now;
  const lived = job.began_at === undefined ? 0 : over - job.began_at;
  const about = `job ${job.id} on ${cluster} ${ending(how, reason)} after ${formatMs(lived)}`;
  const note = (text: string): DecisionNote => ({ ...(model === undefined ? {} : { model }), text });
  if (model === undefined || (job.asked !== undefined && how !== 'late'))
    return note(`${about}${job.asked === undefined ? '' : `: ${job.asked.why}`}`);
  const short = lived < world.config.guest.short_lived;
  const kind = failureOf(job, how, short, over, world);
  const failure = { model, cluster, context, reason: about, ...(logTail === undefined ? {} : { log_tail: logTail }) };
  if (kind === undefined) return note(about);
  const follows = [recordFailure(memory, kind, failure, world.config.guest, now), blockedHost(job, kind, memory, now)];
  return note([about, ...follows].filter((text) => text !== undefined).join('; '));
}

/** Blames the host for a failed start, if the recipe has served before. Otherwise the recipe may be broken. */
function blockedHost(job: JobMemory, kind: FailureKind, memory: Memory, now: number): string | undefined {
  const { cluster, host, context } = job;
  if (kind !== 'failed' || host === undefined || memory.loads[context] === undefined) return undefined;
  return recordHostFailure(memory, cluster, host, now);
}

/**
 * Returns the kind of failure. Undefined if the recipe is not at fault: the job served, had enough time to serve, or
 * never started.
 */
function failureOf(
  job: JobMemory,
  how: EndedJob['how'],
  short: boolean,
  over: number,
  world: FactoryWorld,
): FailureKind | undefined {
  const served = job.ready_at !== undefined && over - job.ready_at >= world.config.guest.short_lived;
  if (job.unwatched === true && job.ready_at === undefined && how !== 'cancelled') return 'unwatched';
  switch (how) {
    case 'cancelled':
      return 'cancelled';
    case 'preempted':
    case 'node':
      return short ? 'short' : undefined;
    case 'vanished':
      // Some schedulers do not report how jobs end. A job that started and never served then counts as failed.
      if (job.began_at !== undefined && job.ready_at === undefined) return 'failed';
      return short ? 'short' : undefined;
    case 'time':
      // A job that never started only waited in the queue, so it has not failed.
      return job.began_at === undefined || served ? undefined : 'failed';
    default:
      return served ? undefined : 'failed';
  }
}

function ending(how: EndedJob['how'], reason: string | undefined): string {
  const words = reason === undefined ? '' : ` (${reason})`;
  switch (how) {
    case 'preempted':
      return `was preempted${words}`;
    case 'node':
      return `lost its node${words}`;
    case 'time':
      return `reached its time limit${words}`;
    case 'cancelled':
      return `was cancelled${words}`;
    case 'vanished':
      return 'is no longer known to its scheduler';
    case 'late':
      return 'was ended by this factory';
    case 'done':
      return `ended${words}`;
    default:
      return `failed${words}`;
  }
}

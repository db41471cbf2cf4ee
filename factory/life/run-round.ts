/** Runs one round: queries the schedulers, decides, acts, and stores each step before it is taken. */
import { jobNamePrefix } from '../../shared/factory/factory-exchange.ts';
import type { FactoryConfig } from '../config/schema.ts';
import { blockedHosts, forgetHosts } from '../decisions/blocked-hosts.ts';
import { type Decisions, decideActions, withIntendedSubmissions } from '../decisions/decide-actions.ts';
import { DRAIN_MAX_MS } from '../decisions/decide-stops.ts';
import type {
  ClusterView,
  DecisionNote,
  FactoryAction,
  FactoryWorld,
  PlacedModel,
} from '../decisions/factory-world.ts';
import { recordAcceptance, recordFailure } from '../decisions/launch-back-off.ts';
import { assessEnd, type EndedJob, nodesByJob, observeJobs, startTimeoutReason } from '../decisions/observe-jobs.ts';
import { FAILED_MAX, type Memory } from '../decisions/persisted-state.ts';
import type { DemandReading } from '../demand/demand-source.ts';
import { errorLine } from '../factory-error.ts';
import { type Launcher, LauncherError } from '../launchers/launcher.ts';
import { jobContext } from '../recipes/job-context.ts';
import { scriptBody } from '../recipes/job-script.ts';

/** Slurm's refusal of a host that it does not know, which may have been taken out of the cluster. */
const NODE_REFUSED = /node name/i;

export interface RoundDependencies {
  config: FactoryConfig;
  models: readonly PlacedModel[];
  /** Launchers by cluster. */
  launchers: ReadonlyMap<string, Launcher>;
  memory: Memory;
  heard(now: number): DemandReading;
  now(): number;
  /** Time (`at`) of this process's previous round. */
  before?: number | undefined;
  /**
   * Stores the memory. Called before a scheduler receives a request.
   * @throws the error of the file system; then the request is not sent
   */
  remember(memory: Memory): void;
  logTail(cluster: string, id: string): Promise<string | undefined>;
  /** Returns the path of a job's output; `%j` stands for the job's id. */
  logPath(cluster: string): string;
  note(note: DecisionNote): void;
  /** True if the round only reports what it would do. */
  dry?: boolean;
}

export interface RoundResult extends Decisions {
  /** When the schedulers had answered; milliseconds since the epoch. */
  at: number;
  world: FactoryWorld;
  /** Sessions that the gateway should drain, with the reason. */
  drains: { session: string; why: string }[];
}

export async function runRound(parts: RoundDependencies): Promise<RoundResult> {
  const { memory, config } = parts;
  const clusters = await views(parts);
  const now = parts.now();
  const before = parts.before === undefined ? {} : { before: parts.before };
  const world: FactoryWorld = { config, models: parts.models, clusters, ...parts.heard(now), ...before };
  const { ended, notes } = observeJobs(memory, world, now);
  for (const one of notes) parts.note(one);
  for (const one of ended) await end(parts, one, world, now);
  const late = lateJobs(memory, world, now);
  for (const { ended: one } of late) await end(parts, one, world, now);
  const decisions = decideActions(memory, world, now);
  decisions.actions.unshift(...late.map(({ action }) => action));
  if (parts.dry !== true) {
    parts.remember(memory);
    for (const action of decisions.actions) await act(parts, action);
    for (const job of draining(memory, world)) await drain(parts, job);
    parts.remember(memory);
  }
  const drains = draining(memory, world).filter(({ cluster }) => parts.launchers.get(cluster)?.drain === undefined);
  return { ...decisions, at: now, world, drains: drains.map(({ session, why }) => ({ session, why })) };
}

/**
 * Queries all clusters concurrently. A cluster that does not answer gets an unreachable view; the function does not
 * reject.
 */
async function views({ config, launchers }: RoundDependencies): Promise<Map<string, ClusterView>> {
  const prefix = jobNamePrefix(config.factory);
  const one = async (id: string): Promise<[string, ClusterView]> => {
    const launcher = launchers.get(id);
    if (launcher === undefined) return [id, { reachable: false, reason: 'no launcher' }];
    try {
      const [jobs, capacity] = await Promise.all([
        launcher.list(prefix),
        // Idle GPUs only decide which cluster and recipe are tried first. If they are unknown, the order in
        // factory.toml is used.
        launcher.capacity().catch(() => undefined),
      ]);
      return [id, { reachable: true, jobs, ...(capacity === undefined ? {} : { capacity }) }];
    } catch (error) {
      return [id, { reachable: false, reason: errorLine(error) }];
    }
  };
  return new Map(await Promise.all(config.clusters.map(({ id }) => one(id))));
}

async function end(parts: RoundDependencies, ended: EndedJob, world: FactoryWorld, now: number): Promise<void> {
  const { job, how } = ended;
  const interesting = how !== 'preempted' && how !== 'node' && how !== 'cancelled';
  const tail = interesting && job.asked === undefined ? await parts.logTail(job.cluster, job.id) : undefined;
  // A job that printed something has begun. No list showed that, because Grid Engine and HTCondor do not list ended
  // jobs.
  if (how === 'vanished' && tail !== undefined) job.began_at ??= job.seen_at;
  const note = assessEnd(ended, tail, parts.memory, world, now);
  parts.note(note);
  if (job.model === undefined || !interesting || job.asked !== undefined || job.ready_at !== undefined) return;
  if (job.unwatched === true || (how === 'vanished' && job.began_at === undefined)) return;
  const { cluster, id, model, gpus } = job;
  const reason = note.text.slice(0, 300);
  const failed = { cluster, id, model, gpus, at: now, reason, ...(tail === undefined ? {} : { log_tail: tail }) };
  parts.memory.failed = [...parts.memory.failed, failed].slice(-FAILED_MAX);
}

function lateJobs(memory: Memory, world: FactoryWorld, now: number): { ended: EndedJob; action: FactoryAction }[] {
  return Object.values(memory.jobs).flatMap((job) => {
    const reason = startTimeoutReason(job, world, now);
    if (reason === undefined || world.clusters.get(job.cluster)?.reachable !== true) return [];
    const ended: EndedJob = { job: { ...job }, how: 'late', reason };
    job.asked = { at: now, what: 'cancel', why: reason };
    const of = job.model === undefined ? {} : { model: job.model };
    return [{ ended, action: { kind: 'cancel' as const, cluster: job.cluster, jobs: [job.id], ...of, why: reason } }];
  });
}

/**
 * Asks the launcher to drain the job, if the launcher can do that (idle agents). All other nodes are drained by the
 * gateway, which gets `drains` with the report. Repeated in every round until the node drains.
 */
async function drain({ launchers, note }: RoundDependencies, { cluster, job, model, why }: DrainingJob): Promise<void> {
  try {
    await launchers.get(cluster)?.drain?.(job, DRAIN_MAX_MS);
  } catch (error) {
    const of = model === undefined ? {} : { model };
    note({ ...of, text: `cannot drain ${job} on ${cluster} (${why}): ${errorLine(error)}` });
  }
}

interface DrainingJob {
  cluster: string;
  job: string;
  session: string;
  model: string | undefined;
  why: string;
}

/** Returns jobs with a node that were asked to drain and do not drain yet. */
function draining(memory: Memory, world: FactoryWorld): DrainingJob[] {
  const nodes = nodesByJob(world);
  return Object.entries(memory.jobs).flatMap(([key, job]) => {
    const node = nodes.get(key);
    if (job.asked?.what !== 'drain' || node === undefined || node.state === 'draining') return [];
    const { cluster, id, model, asked } = job;
    return [{ cluster, job: id, session: node.session, model, why: asked.why }];
  });
}

async function act(parts: RoundDependencies, action: FactoryAction): Promise<void> {
  const of = action.model === undefined ? {} : { model: action.model };
  if (action.kind === 'drain')
    return parts.note({ ...of, text: `drains job ${action.job} on ${action.cluster}: ${action.why}` });
  if (action.kind === 'submit') return submit(parts, action);
  try {
    await parts.launchers.get(action.cluster)?.cancel(action.jobs);
    parts.note({ ...of, text: `cancels job ${action.jobs.join(', ')} on ${action.cluster}: ${action.why}` });
  } catch (error) {
    // The cancellation will be repeated, because `asked` stays in the memory with its time.
    parts.note({
      ...of,
      text: `cannot cancel job ${action.jobs.join(', ')} on ${action.cluster}: ${errorLine(error)}`,
    });
  }
}

async function submit(parts: RoundDependencies, action: Extract<FactoryAction, { kind: 'submit' }>): Promise<void> {
  const { memory, config, launchers } = parts;
  const { place, model, count, why } = action;
  const { cluster, pool, engine, context } = place;
  const launcher = launchers.get(cluster.id);
  if (launcher === undefined) return;
  const submission = withIntendedSubmissions(memory, action, config.factory, parts.now());
  parts.remember(memory);
  const where = `${cluster.id}/${pool.name}`;
  const jobs = count === 1 ? 'a job' : `${count} jobs`;
  try {
    const contents = jobContext(model, place);
    const exclude = blockedHosts(memory, cluster.id, parts.now());
    const body = scriptBody({
      factory: config.factory,
      gateway: config.gateway,
      cluster,
      gpu: pool.gpu,
      context: contents,
      contextId: context,
      jobId: launcher.jobId,
    });
    const ids = await launcher.submit({
      name: submission.name,
      count,
      pool,
      gpus: engine.gpus,
      ...(engine.image === undefined ? {} : { image: engine.image }),
      ...(contents.deployment === undefined ? {} : { deployment: contents.deployment }),
      body,
      ...(exclude.length > 0 && { exclude }),
      log: parts.logPath(cluster.id),
    });
    submission.outcome = 'accepted';
    submission.ids = ids.slice(0, 100);
    recordAcceptance(memory, model, cluster.id, pool);
    parts.note({ model, text: `submits ${jobs} to ${where}${ids.length === 0 ? '' : ` (${ids.join(', ')})`}: ${why}` });
  } catch (error) {
    // After any other error the outcome is unknown, so the submission stays `sent`.
    if (!(error instanceof LauncherError)) throw error;
    if (NODE_REFUSED.test(error.message)) forgetHosts(memory, cluster.id);
    submission.outcome = error.code === 'unclear' ? 'unclear' : 'refused';
    const reason = `${where}: ${errorLine(error)}`;
    const follows = recordFailure(
      memory,
      'refused',
      { model, cluster: cluster.id, pool, context, reason },
      config.guest,
      parts.now(),
    );
    parts.note({
      model,
      text:
        submission.outcome === 'unclear'
          ? `the result of submitting ${jobs} to ${reason} is unknown; they may exist`
          : follows,
    });
  }
}

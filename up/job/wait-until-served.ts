/**
 * Waits until the job's node serves a model. The gateway is on this machine and is asked often; the login node is shared
 * and is asked rarely.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { jobOf, type LocalGateway } from '../gateway/local-gateway.ts';
import type { JobStatus } from './job-status.ts';
import type { RunJobs } from './run-jobs.ts';

/** Intervals between two looks at the gateway. After a minute, one second more is less than 2 % of the wait. */
const LOOK_MS = 100;
const LOOK_LATER_MS = 1_000;
/** Intervals between two questions to the host. */
const ASK_MS = 2_000;
const ASK_LATER_MS = 15_000;
const LATER_AFTER_MS = 60_000;

interface ServedWait {
  gateway: Pick<LocalGateway, 'nodes'>;
  jobs: Pick<RunJobs, 'status'>;
  job: string;
  /** The cluster's name of the run at the gateway. */
  cluster: string;
  /** The model that is preferred if the node serves several. */
  model: string;
  /** Called with each status of the job. */
  onStatus(status: JobStatus, waitedMs: number): Promise<void>;
  signal: AbortSignal;
}

/** `served`: the name of a model that the node serves. `ended`: the job's final state. */
type ServedOutcome = { kind: 'served'; model: string } | { kind: 'ended'; state: string };

/** @throws UpError if the host does not answer, and the signal's reason */
export async function waitUntilServed(wait: ServedWait): Promise<ServedOutcome> {
  const over = new AbortController();
  const signal = AbortSignal.any([wait.signal, over.signal]);
  try {
    return await Promise.race([servedModel(wait, signal), endOfJob(wait, signal)]);
  } finally {
    // Ends the other one. The model's answer does not wait for the host's.
    over.abort();
  }
}

async function servedModel(wait: ServedWait, signal: AbortSignal): Promise<ServedOutcome> {
  const { gateway, cluster, job, model } = wait;
  for (const from = performance.now(); ; ) {
    signal.throwIfAborted();
    const nodes = await gateway.nodes(cluster).catch(() => []);
    const node = nodes.find((one) => jobOf(one) === job && one.state === 'SERVING');
    const ready = node?.models.filter(({ state }) => state === 'ready') ?? [];
    const found = ready.find(({ id }) => id === model) ?? ready[0];
    if (found !== undefined) return { kind: 'served', model: found.id };
    await delay(performance.now() - from > LATER_AFTER_MS ? LOOK_LATER_MS : LOOK_MS, undefined, { signal });
  }
}

async function endOfJob({ jobs, job, onStatus }: ServedWait, signal: AbortSignal): Promise<ServedOutcome> {
  for (const from = performance.now(); ; ) {
    const status = await jobs.status(job);
    signal.throwIfAborted();
    if (status.kind === 'ended') return { kind: 'ended', state: status.state };
    const waitedMs = performance.now() - from;
    await onStatus(status, waitedMs);
    const isLater = waitedMs > LATER_AFTER_MS && status.kind === 'pending';
    await delay(isLater ? ASK_LATER_MS : ASK_MS, undefined, { signal });
  }
}

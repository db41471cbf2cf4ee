/**
 * Kubernetes: a Job of batch/v1 for each job, by four calls of its REST interface. The official client brings sixteen
 * packages for them; the types here are generated from the API's published schema. Its tests run against a mock server and
 * an API server without controllers; it was not tested with a whole cluster.
 */

import { readFileSync } from 'node:fs';
import type { IJob as Job } from 'kubernetes-models/batch/v1/Job';
import { Agent, fetch } from 'undici';
import * as z from 'zod';
import type { ListedJob } from '../../node/batch-systems/batch-system.ts';
import { timeLimitMs } from '../../node/batch-systems/time-limit.ts';
import { readTextAtMost } from '../../shared/collections/read-at-most.ts';
import { findGpuClass } from '../../shared/hardware/gpu-classes.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { AdaptiveTimeout } from '../../shared/timing/adaptive-timeout.ts';
import type { ClusterConfig } from '../config/schema.ts';
import { errorLine } from '../factory-error.ts';
import { type CheckFinding, type Launcher, LauncherError, type Submission } from './launcher.ts';

const ANSWER = { leastMs: 30_000, mostMs: 120_000 };
const ANSWER_MAX_BYTES = 16 * 1024 * 1024;
const JOBS_PER_PAGE = 500;
/** An ended job stays in the cluster for this time, so that the factory can read how it ended. */
const ENDED_JOB_TTL_S = 600;
/** Seconds that an agent has to drain before its pod is killed. */
const GRACE_S = 120;
const NAME_LABEL = 'otela-submission';
const FACTORY_LABEL = 'app.kubernetes.io/managed-by';
const SECRET_AT = '/var/run/otela';
/** Resource names of the vendors' device plugins. */
export const GPU_RESOURCE = { nvidia: 'nvidia.com/gpu', amd: 'amd.com/gpu', intel: 'gpu.intel.com/i915' } as const;

export function kubernetesLauncher(cluster: ClusterConfig): Launcher {
  const api = new Api(cluster);
  return {
    kind: 'kubernetes',
    seen: 'recorded',
    jobId: '$OTELA_JOB',
    async submit(submission) {
      const ids = Array.from({ length: submission.count }, (_, n) =>
        submission.count === 1 ? submission.name : `${submission.name}-${n}`,
      );
      for (const [n, id] of ids.entries())
        await api.call('POST', '', manifest(submission, id, cluster)).catch((error: unknown) => {
          throw n > 0 && error instanceof LauncherError
            ? new LauncherError('unclear', error.message, { cause: error })
            : error;
        });
      return ids;
    },
    async list(prefix) {
      const jobs: ListedJob[] = [];
      for (let next: string | undefined = ''; next !== undefined; ) {
        const page: string = next === '' ? '' : `&continue=${encodeURIComponent(next)}`;
        const read = parseList(
          await api.call('GET', `?labelSelector=${FACTORY_LABEL}%3Dotela-factory&limit=${JOBS_PER_PAGE}${page}`),
        );
        jobs.push(...read.jobs.filter(({ name }) => name.startsWith(prefix)));
        next = read.next;
      }
      return jobs;
    },
    // Idle GPUs are not reported: counting them needs all pods of all namespaces, which most users may not list.
    capacity: async () => undefined,
    async cancel(ids) {
      for (const id of ids) await api.call('DELETE', `/${id}?propagationPolicy=Background`);
    },
    async check(submission): Promise<CheckFinding> {
      try {
        await api.call('POST', '?dryRun=All', manifest(submission, `${submission.name}-check`, cluster));
        return { ok: true, text: 'the API server would accept it' };
      } catch (error) {
        if (error instanceof LauncherError && error.code === 'refused') return { ok: false, text: error.message };
        throw error;
      }
    },
  };
}

/** @throws LauncherError `refused` if the engine has no image */
function manifest({ name, pool, gpus, body, image }: Submission, id: string, cluster: ClusterConfig): Job {
  if (image === undefined) throw new LauncherError('refused', 'the engine has no image');
  const resource = pool.gres ?? GPU_RESOURCE[findGpuClass(pool.gpu)?.vendor ?? 'nvidia'];
  const limits = {
    [resource]: String(gpus),
    ...(pool.cpus === undefined ? {} : { cpu: String(pool.cpus) }),
    ...(pool.memory === undefined ? {} : { memory: pool.memory }),
  };
  const labels = { [FACTORY_LABEL]: 'otela-factory', [NAME_LABEL]: name };
  return {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: { name: id, labels },
    spec: {
      // A restarted pod would be a job that the factory did not submit.
      backoffLimit: 0,
      ttlSecondsAfterFinished: ENDED_JOB_TTL_S,
      template: {
        metadata: { labels },
        spec: {
          restartPolicy: 'Never',
          // Deadline of the pod, which counts from its start on a node. A job's deadline would include the wait for a
          // GPU.
          activeDeadlineSeconds: Math.floor((timeLimitMs(pool.time) ?? 0) / 1_000),
          terminationGracePeriodSeconds: GRACE_S,
          automountServiceAccountToken: false,
          ...(cluster.service_account === undefined ? {} : { serviceAccountName: cluster.service_account }),
          ...(pool.node_selector === undefined ? {} : { nodeSelector: pool.node_selector }),
          ...(pool.account === undefined ? {} : { priorityClassName: pool.account }),
          ...(cluster.secret === undefined
            ? {}
            : { volumes: [{ name: 'join-token', secret: { secretName: cluster.secret, defaultMode: 0o400 } }] }),
          containers: [
            {
              name: 'agent',
              image,
              command: ['/bin/bash', '-c', body],
              env: [{ name: 'OTELA_JOB', value: id }],
              resources: { limits },
              ...(cluster.secret === undefined
                ? {}
                : { volumeMounts: [{ name: 'join-token', mountPath: SECRET_AT, readOnly: true }] }),
            },
          ],
        },
      },
    },
  };
}

const listSchema = z.object({
  metadata: z.object({ continue: z.string().optional() }),
  items: z.array(
    z.object({
      metadata: z.object({ name: z.string(), labels: z.record(z.string(), z.string()).optional() }),
      status: z
        .object({
          ready: z.number().optional(),
          active: z.number().optional(),
          conditions: z
            .array(
              z.object({
                type: z.string(),
                status: z.string(),
                reason: z.string().optional(),
                message: z.string().optional(),
              }),
            )
            .optional(),
        })
        .optional(),
    }),
  ),
});

/**
 * Parses a page of jobs. Kubernetes counts a pod as active while it waits for a node. So a job counts as running only
 * when its containers are ready.
 */
function parseList(value: unknown): { jobs: ListedJob[]; next?: string } {
  const { items, metadata } = listSchema.parse(value);
  const jobs = items.map(({ metadata: { name: id, labels }, status }): ListedJob => {
    const named = { id, name: labels?.[NAME_LABEL] ?? '' };
    const over = status?.conditions?.find(
      (one) => one.status === 'True' && (one.type === 'Failed' || one.type === 'Complete'),
    );
    if (over !== undefined) {
      const ended = over.type === 'Complete' ? 'done' : over.reason === 'DeadlineExceeded' ? 'time' : 'failed';
      return { ...named, state: 'ended', ended, reason: (over.message ?? over.reason ?? over.type).slice(0, 300) };
    }
    return (status?.ready ?? 0) > 0
      ? { ...named, state: 'running' }
      : { ...named, state: 'pending', reason: (status?.active ?? 0) > 0 ? 'its pod waits' : 'it has no pod yet' };
  });
  return { jobs, ...(metadata.continue === undefined || metadata.continue === '' ? {} : { next: metadata.continue }) };
}

class Api {
  readonly #cluster: ClusterConfig;
  #dispatcher: Agent | undefined;
  readonly #answers = new AdaptiveTimeout(ANSWER);

  constructor(cluster: ClusterConfig) {
    this.#cluster = cluster;
  }

  /** Deleting a job that does not exist succeeds. @throws LauncherError */
  async call(method: 'GET' | 'POST' | 'DELETE', path: string, body?: unknown): Promise<unknown> {
    const { server = '', namespace = '', token_file: tokenFile = '', ca_file: caFile } = this.#cluster;
    let [status, text] = [0, ''];
    try {
      this.#dispatcher ??= new Agent(caFile === undefined ? {} : { connect: { ca: readFileSync(caFile) } });
      const url = `${server.replace(/\/$/, '')}/apis/batch/v1/namespaces/${namespace}/jobs${path}`;
      const request = {
        method,
        // The file is read for each request: tokens of service accounts change hourly.
        headers: {
          authorization: `Bearer ${readFileSync(tokenFile, 'utf8').trim()}`,
          'content-type': 'application/json',
          accept: 'application/json',
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        dispatcher: this.#dispatcher,
        redirect: 'error',
      } as const;
      const ask = async (ms: number) => {
        const response = await fetch(url, { ...request, signal: AbortSignal.timeout(ms) });
        return { status: response.status, body: await readTextAtMost(response.body, ANSWER_MAX_BYTES) };
      };
      const answer = await this.#answers.bound(() => performance.now(), ask);
      if (answer.body === undefined) throw new Error(`the response is larger than ${ANSWER_MAX_BYTES} bytes`);
      [status, text] = [answer.status, answer.body];
    } catch (cause) {
      throw new LauncherError(method === 'POST' ? 'unclear' : 'unreachable', `${server}: ${errorLine(cause)}`, {
        cause,
      });
    }
    if (status >= 500 || status === 429)
      throw new LauncherError(method === 'POST' ? 'unclear' : 'unreachable', `${status} ${message(text)}`);
    // A 404 of a proxy does not mean that the job is gone.
    if (status === 404 && method === 'DELETE') {
      if (isNotFound(text)) return undefined;
      throw new LauncherError('unreachable', `${status} ${message(text)}`);
    }
    if (status >= 400)
      throw new LauncherError(method === 'GET' ? 'unreachable' : 'refused', `${status} ${message(text)}`);
    try {
      return JSON.parse(text);
    } catch (cause) {
      throw new LauncherError('unreachable', `the response of ${server} is not JSON`, { cause });
    }
  }
}

/** True for the API server's own 404. https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/ */
function isNotFound(text: string): boolean {
  const status = z.object({ kind: z.literal('Status'), reason: z.literal('NotFound') });
  return status.safeParse(tryParseJson(text)).success;
}

function message(text: string): string {
  try {
    return z.object({ message: z.string() }).parse(JSON.parse(text)).message.slice(0, 300);
  } catch {
    return text.slice(0, 200);
  }
}

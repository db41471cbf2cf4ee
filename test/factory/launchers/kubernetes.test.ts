/**
 * The Kubernetes launcher at a mock API server, which checks Jobs against the published schema, stores them, and
 * answers by the API's conventions.
 */
import { writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { type IJob as Job, Job as PublishedJob } from 'kubernetes-models/batch/v1/Job';
import { afterEach, expect, it } from 'vitest';
import { parseConfig } from '../../../factory/config/read-config.ts';
import type { PoolConfig } from '../../../factory/config/schema.ts';
import { kubernetesLauncher } from '../../../factory/launchers/kubernetes.ts';
import { type Launcher, LauncherError, type Submission } from '../../../factory/launchers/launcher.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { CONFIG } from '../../support/factory/config-text.ts';
import { atEnd, endAll, temporaryDirectory } from '../../support/processes.ts';

afterEach(endAll);

const PATH = '/apis/batch/v1/namespaces/otela/jobs';
const PREFIX = 'otela-pool--';
const NAME = `${PREFIX}0123456789ab-1`;

interface Call {
  method: string;
  url: URL;
  authorization: string | undefined;
  body: string;
}

class ApiServer {
  readonly calls: Call[] = [];
  readonly jobs: Job[] = [];
  /** The response to use instead, by the number of the call. */
  fault: (call: number) => { status: number; message: string } | undefined = () => undefined;
  /** If true, each response has a body without end. */
  endless = false;
  sentBytes = 0;
  url = '';

  async open(): Promise<this> {
    const server = createServer((request, response) => {
      if (this.endless) return this.#sendOn(response);
      neverRejects(
        this.#answer(request).then(([status, value]) => {
          response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
        }),
      );
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    atEnd(() => {
      server.closeAllConnections();
      server.close();
    });
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return this;
  }

  #sendOn(response: ServerResponse): void {
    const piece = Buffer.alloc(1024 * 1024, ' ');
    const more = () => {
      do this.sentBytes += piece.length;
      while (!response.destroyed && response.write(piece));
    };
    response.on('drain', more);
    more();
  }

  async #answer(request: IncomingMessage): Promise<[number, unknown]> {
    let body = '';
    for await (const piece of request) body += String(piece);
    const url = new URL(request.url ?? '', this.url);
    this.calls.push({ method: request.method ?? '', url, authorization: request.headers.authorization, body });
    const fault = this.fault(this.calls.length);
    if (fault !== undefined) return [fault.status, { kind: 'Status', ...fault, code: fault.status }];
    if (request.method === 'POST') {
      const job = JSON.parse(body) as Job;
      // Checked against Kubernetes' published schema: a Job that a real server would refuse is refused here.
      try {
        new PublishedJob(job as never).validate();
      } catch (error) {
        return [422, { kind: 'Status', message: String(error), code: 422 }];
      }
      if (url.searchParams.get('dryRun') !== 'All') this.jobs.push(job);
      return [201, job];
    }
    if (request.method === 'DELETE') {
      const at = this.jobs.findIndex(({ metadata }) => url.pathname === `${PATH}/${metadata?.name}`);
      if (at < 0) return [404, { kind: 'Status', message: 'jobs.batch not found', reason: 'NotFound', code: 404 }];
      this.jobs.splice(at, 1);
      return [200, { kind: 'Status', status: 'Success' }];
    }
    // Always two per page, because a server may return fewer than the request asks for.
    const from = Number(url.searchParams.get('continue') ?? 0);
    const rest = from + 2 < this.jobs.length ? { continue: String(from + 2) } : {};
    return [200, { kind: 'JobList', metadata: rest, items: this.jobs.slice(from, from + 2) }];
  }
}

interface Site {
  api: ApiServer;
  launcher: Launcher;
  token: string;
  submission(more?: Partial<Submission>, pool?: Partial<PoolConfig>): Submission;
}

async function site(): Promise<Site> {
  const read = parseConfig(CONFIG);
  const [cluster] = 'faults' in read ? [] : read.config.clusters;
  const [pool] = cluster?.pools ?? [];
  if (cluster === undefined || pool === undefined) throw new Error('no cluster');
  const api = await new ApiServer().open();
  const token = join(await temporaryDirectory(), 'token');
  writeFileSync(token, 'first\n', { mode: 0o600 });
  const more = { server: api.url, namespace: 'otela', token_file: token, secret: 'join-token' };
  const launcher = kubernetesLauncher({ ...cluster, launcher: 'kubernetes', ...more });
  const job = { name: NAME, count: 1, gpus: 2, body: 'exec otela-agent start\n', log: '/state/%j.log' };
  const submission: Site['submission'] = (given = {}, of = {}) => ({
    ...job,
    image: 'example/vllm:1',
    ...given,
    pool: { ...pool, ...of },
  });
  return { api, launcher, token, submission };
}

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'done',
    (error: unknown) => (error instanceof LauncherError ? error.code : String(error)),
  );

it('a job is one Job that never begins again, on a node with the GPUs, with its token as a file', async () => {
  const { api, launcher, submission } = await site();
  const selector = { 'nvidia.com/gpu.product': 'NVIDIA-H100-80GB-HBM3' };
  const pool = { node_selector: selector, time: '04:00:00', cpus: 16, memory: '128Gi' };
  expect(await launcher.submit(submission({}, pool))).toEqual([NAME]);
  const [job] = api.jobs;
  expect(api.calls[0]?.url.pathname).toBe(PATH);
  expect(job).toMatchObject({ apiVersion: 'batch/v1', kind: 'Job', metadata: { name: NAME } });
  expect(job?.spec).toMatchObject({ backoffLimit: 0, template: { spec: { activeDeadlineSeconds: 4 * 3_600 } } });
  expect(job?.spec).not.toHaveProperty('activeDeadlineSeconds');
  const pod = job?.spec?.template.spec;
  expect(pod).toMatchObject({ restartPolicy: 'Never', nodeSelector: selector, automountServiceAccountToken: false });
  expect(pod?.containers).toEqual([
    expect.objectContaining({
      image: 'example/vllm:1',
      resources: { limits: { 'nvidia.com/gpu': '2', cpu: '16', memory: '128Gi' } },
      volumeMounts: [{ name: 'join-token', mountPath: '/var/run/otela', readOnly: true }],
    }),
  ]);
  expect(pod?.volumes).toEqual([{ name: 'join-token', secret: { secretName: 'join-token', defaultMode: 0o400 } }]);
});

it('GPUs are asked for by the name that their maker’s device plugin has, or by the pool’s own', async () => {
  const { api, launcher, submission } = await site();
  for (const pool of [{ gpu: 'MI300X' }, { gpu: 'H100', gres: 'nvidia.com/mig-3g.40gb' }])
    await launcher.submit(submission({}, pool));
  expect(api.jobs.map(({ spec }) => Object.keys(spec?.template.spec?.containers[0]?.resources?.limits ?? {}))).toEqual([
    ['amd.com/gpu'],
    ['nvidia.com/mig-3g.40gb'],
  ]);
});

it('jobs are listed over all pages, by what became of them; those of others are left out', async () => {
  const { api, launcher, submission } = await site();
  await launcher.submit(submission({ count: 6 }));
  await launcher.submit(submission({ name: 'otela-pool-two--0123456789ab-1' }));
  const over = (type: string, more: Record<string, string> = {}) => ({
    conditions: [{ type, status: 'True', ...more }],
  });
  const statuses = [
    {},
    { active: 1, ready: 0 },
    { active: 1, ready: 1 },
    over('Complete'),
    over('Failed', { reason: 'DeadlineExceeded', message: 'Job was active longer than specified deadline' }),
    over('Failed', { reason: 'BackoffLimitExceeded' }),
  ];
  for (const [n, status] of statuses.entries()) Object.assign(api.jobs[n] ?? {}, { status });
  const listed = await launcher.list(PREFIX);
  expect(listed.map(({ state, ended, reason }) => [state, ended, reason])).toEqual([
    ['pending', undefined, 'it has no pod yet'],
    ['pending', undefined, 'its pod waits'],
    ['running', undefined, undefined],
    ['ended', 'done', 'Complete'],
    ['ended', 'time', 'Job was active longer than specified deadline'],
    ['ended', 'failed', 'BackoffLimitExceeded'],
  ]);
  expect(new Set(listed.map(({ name }) => name))).toEqual(new Set([NAME]));
  expect(api.calls.at(-1)?.url.searchParams.get('labelSelector')).toBe('app.kubernetes.io/managed-by=otela-factory');
});

it('a refusal is told; a server that fails may have taken the job, and its list is no empty one', async () => {
  const { api, launcher, submission } = await site();
  api.fault = () => ({ status: 403, message: 'exceeded quota: gpus, requested: nvidia.com/gpu=2' });
  await expect(launcher.submit(submission())).rejects.toThrow('exceeded quota');
  expect(await codeOf(launcher.submit(submission()))).toBe('refused');
  expect(await codeOf(launcher.list(PREFIX))).toBe('unreachable');
  for (const status of [500, 429]) {
    api.fault = () => ({ status, message: 'etcdserver: request timed out' });
    expect([await codeOf(launcher.submit(submission())), await codeOf(launcher.list(PREFIX))]).toEqual([
      'unclear',
      'unreachable',
    ]);
  }
  // The first of three was accepted.
  const before = api.calls.length;
  api.fault = (call) => (call === before + 2 ? { status: 403, message: 'exceeded quota' } : undefined);
  expect(await codeOf(launcher.submit(submission({ count: 3 })))).toBe('unclear');
  const { image: _, ...noImage } = submission();
  expect(await codeOf(launcher.submit(noImage))).toBe('refused');
});

it('check creates nothing, a job that is gone is cancelled without complaint, and a token that was changed is read anew', async () => {
  const { api, launcher, submission, token } = await site();
  expect(await launcher.check(submission())).toMatchObject({ ok: true });
  expect(api.jobs).toEqual([]);
  const [id = ''] = await launcher.submit(submission());
  writeFileSync(token, 'second\n');
  await launcher.cancel([id, 'gone']);
  expect(api.jobs).toEqual([]);
  expect(api.calls.map(({ authorization }) => authorization)).toEqual([
    'Bearer first',
    'Bearer first',
    'Bearer second',
    'Bearer second',
  ]);
  expect(api.calls.at(-1)?.url.searchParams.get('propagationPolicy')).toBe('Background');
});

it('a job whose cancellation gets the 404 of a proxy, not of the API server, is not cancelled', async () => {
  const { api, launcher, submission } = await site();
  const [id = ''] = await launcher.submit(submission());
  api.fault = () => ({ status: 404, message: 'no route matched' });
  expect(await codeOf(launcher.cancel([id]))).toBe('unreachable');
  api.fault = () => undefined;
  await launcher.cancel([id]);
  expect(api.jobs).toEqual([]);
});

it('an answer without end is refused while it arrives', async () => {
  const { api, launcher } = await site();
  api.endless = true;
  expect(await codeOf(launcher.list(PREFIX))).toBe('unreachable');
  expect(api.sentBytes).toBeLessThan(64 * 1024 * 1024);
});

/** `otela up --kubernetes` at a real API server: a pod serves a model on this machine, and nothing is left of it. */
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { answer, MODEL, served } from '../slurm/laptop.ts';
import { ENGINE_MAIN } from '../support/agent.ts';
import { KubernetesCluster, NO_KUBERNETES } from '../support/kubernetes/cluster.ts';
import { endAll, eventually, Managed, temporaryDirectory } from '../support/processes.ts';
import { NODE, OTELA_MAIN, ROOT } from '../support/where.ts';

let cluster: KubernetesCluster;
let home: string;

beforeAll(async () => {
  if (NO_KUBERNETES === undefined) cluster = await KubernetesCluster.start();
});
afterAll(endAll);
beforeEach(async () => {
  home = await temporaryDirectory('otela-laptop');
  await mkdir(join(home, 'bin'));
  // The container has this machine's root, so the image's engine is a program here.
  const vllm = `#!/bin/sh\nexec ${NODE} ${ENGINE_MAIN} --model '${MODEL}' --api-key-env VLLM_API_KEY "$@"\n`;
  await writeFile(join(home, 'bin/vllm'), vllm, { mode: 0o755 });
});

function otela(...args: string[]): Managed {
  const env = { HOME: home, PATH: `${cluster.bin}:${process.env.PATH}`, KUBECONFIG: cluster.kubeconfig };
  return new Managed([NODE, OTELA_MAIN, ...args], { label: `otela ${args[0]}`, env, cwd: ROOT });
}

async function ran(...args: string[]): Promise<{ code: number | null; out: string }> {
  const running = otela(...args);
  const { code } = await running.end(120_000);
  return { code, out: running.output };
}

const up = (...args: string[]) =>
  otela('up', MODEL, '--kubernetes', '--image', 'engine', '--setup', `PATH=${home}/bin:$PATH`, ...args);

const pods = async (namespace = 'default') =>
  (await cluster.kubectl('get', 'pods', '--no-headers', '--namespace', namespace)).out;

async function refused(words: RegExp, ...args: string[]): Promise<void> {
  const one = up(...args);
  expect(await one.end(60_000)).toMatchObject({ code: 69 });
  expect(one.output).toMatch(words);
}

it.skipIf(NO_KUBERNETES)('a pod serves, continues after Ctrl-C, is found again, and leaves nothing', async () => {
  const first = up();
  const access = await served(first);
  expect(await answer(access)).toContain('stand-in');
  expect(await pods()).toMatch(/^otela-up-\w{8} +1\/1 +Running/);
  expect((await ran('ls')).out).toMatch(/kubernetes lab default .*process \d+ runs/);
  first.signal('SIGINT');
  expect(await first.end(30_000)).toMatchObject({ code: 0 });

  const again = up();
  expect(await answer(await served(again))).toContain('stand-in');
  expect(again.output).not.toContain('creating the pod');
  expect((await ran('logs', '--lines', '5')).code).toBe(0);
  expect(await ran('down', '--purge')).toMatchObject({ code: 0 });
  expect(await again.end(30_000)).toMatchObject({ code: 0 });
  expect(await pods()).toMatch(/No resources found/);
  expect(existsSync(join(home, '.local/state/otela'))).toBe(false);
});

it.skipIf(NO_KUBERNETES)('a user with the documented rights serves in one namespace and in no other', async () => {
  await cluster.grantAda();
  const serving = up('--context', 'ada');
  expect(await answer(await served(serving))).toContain('stand-in');
  expect(await pods('ml')).toMatch(/^otela-up-\w{8} +1\/1 +Running/);
  await refused(/cannot get resource "pods"[\s\S]*create pods\/exec/, '--context', 'ada', '--namespace', 'default');
  expect(await ran('down')).toMatchObject({ code: 0 });
  expect(await serving.end(30_000)).toMatchObject({ code: 0 });
  expect(await pods('ml')).toMatch(/No resources found/);
});

it.skipIf(NO_KUBERNETES)('a pod of others with the name of a run is not used and not deleted', async () => {
  const first = up();
  await served(first);
  const [name = ''] = (await pods()).split(' ');
  first.signal('SIGINT');
  await first.end(30_000);
  await cluster.kubectl('delete', 'pod', name);
  const other = { name: 'engine', image: 'other', command: ['sleep', '600'] };
  const spec = {
    containers: [{ ...other, volumeMounts: [{ name: 'home', mountPath: '/otela' }] }],
    volumes: [{ name: 'home', emptyDir: {} }],
  };
  const file = join(home, 'other.json');
  await writeFile(file, JSON.stringify({ apiVersion: 'v1', kind: 'Pod', metadata: { name }, spec }));
  expect(await cluster.kubectl('create', '-f', file)).toMatchObject({ code: 0 });
  await refused(/was not created by otela up for this run[\s\S]*Run otela down/);
  expect(await ran('down')).toMatchObject({ code: 0 });
  expect(await pods()).toMatch(new RegExp(`^${name} `));
  await cluster.kubectl('delete', 'pod', name, '--grace-period=1');
});

it.skipIf(NO_KUBERNETES)('what Kubernetes refuses, and a pod that waits or fails, is told with a way on', async () => {
  await refused(/no context gone[\s\S]*get-contexts/, '--context', 'gone');
  await refused(/namespaces "gone" not found[\s\S]*another --namespace/, '--namespace', 'gone');
  await refused(/ErrImagePull: not found[\s\S]*give another with --image/, '--image', 'missing');
  await cluster.limited('limited', 'requests.nvidia.com/gpu', '4');
  await refused(/exceeded quota[\s\S]*has a quota/, '--namespace', 'limited', '--gpus', '8');

  const waiting = up('--gpus', '4');
  await waiting.line(/the pod waits: 0\/1 nodes are available: 1 Insufficient nvidia\.com\/gpu/, 60_000);
  expect(await ran('down')).toMatchObject({ code: 0 });
  expect(await waiting.end(30_000)).toMatchObject({ code: 0 });

  const dying = up('--', 'bash', '-c', 'echo torch.OutOfMemoryError: CUDA out of memory; exit 1', '{{port}}');
  expect(await dying.end(120_000)).toMatchObject({ code: 69 });
  expect(dying.output).toMatch(/ended before the model answered[\s\S]*CUDA out of memory/);
  expect(await ran('down')).toMatchObject({ code: 0 });
});

it.skipIf(NO_KUBERNETES)('the command ends with the reason if its pod is deleted while it serves', async () => {
  const serving = up();
  await served(serving);
  await cluster.kubectl('delete', 'pod', '--all');
  // The agent ends first. If the relay ends before the next look at the job, the pod is named.
  const ended = /(?:job \d+ has ended|The pod otela-up-\w+ was deleted)[\s\S]*The same command starts the next one/;
  await serving.line(ended, 120_000);
  expect(await serving.end(120_000)).toMatchObject({ code: 69 });
  await eventually('no gateway', 30_000, async () =>
    (await ran('ls')).out.includes('not connected') ? true : undefined,
  );
});

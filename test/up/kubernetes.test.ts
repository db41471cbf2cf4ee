/** The pod of `otela up --kubernetes`: its manifest, its state, and its place. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Pod } from 'kubernetes-models/v1/Pod';
import { afterEach, expect, it, vi } from 'vitest';
import type { RunCommand } from '../../node/command-runner.ts';
import { parseLine } from '../../shared/command-line/index.ts';
import { requireFitting, UP_FLAGS, upWish } from '../../up/cli/up-flags.ts';
import { KubernetesPod } from '../../up/host/kubernetes/kubernetes-pod.ts';
import { findPlace, kubernetesHost, kubernetesPlace } from '../../up/host/kubernetes/place.ts';
import { podLabels, podManifest } from '../../up/host/kubernetes/pod-manifest.ts';
import { parsePodState } from '../../up/host/kubernetes/pod-state.ts';
import { temporaryDirectory } from '../support/processes.ts';

afterEach(() => vi.unstubAllEnvs());

const HOST = kubernetesHost({ context: 'me@lab', namespace: 'ml' });

function wish(...args: string[]) {
  const { values, words, command } = parseLine(args, UP_FLAGS, { words: 1 });
  requireFitting(values);
  return upWish(values, words, command, values.kubernetes ? HOST : undefined);
}

it('the flags become a pod that is valid by the published schema', () => {
  const selector = 'nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3';
  const flags = ['--kubernetes', '--gpus', '2', '--time', '02:00:00', '--node-selector', selector];
  const read = wish('Qwen/Qwen3-8B', ...flags);
  if (read.kubernetes === undefined) throw new Error('no pod');
  expect(read).toMatchObject({ host: HOST, noSlurm: true, engine: { image: undefined } });
  const pod = podManifest({ id: 'abcd1234', model: 'Qwen/Qwen3-8B' }, read.kubernetes);
  new Pod(pod as never).validate();
  expect(pod).toMatchObject({
    metadata: { name: 'otela-up-abcd1234' },
    spec: {
      activeDeadlineSeconds: 7_200,
      automountServiceAccountToken: false,
      nodeSelector: { 'nvidia.com/gpu.product': 'NVIDIA-H100-80GB-HBM3' },
      containers: [{ image: 'vllm/vllm-openai:latest', resources: { limits: { 'nvidia.com/gpu': '2' } } }],
    },
  });
});

it.each<[string[], RegExp]>([
  [['m', '--kubernetes', '--host', 'cluster'], /--kubernetes and --host exclude each other/],
  [['m', '--kubernetes', '--keep', '3d'], /--kubernetes and --keep exclude/],
  [['m', '--kubernetes', '--cold'], /--kubernetes and --cold exclude/],
  [['m', '--namespace', 'ml'], /--namespace needs --kubernetes/],
  [['m', '--node-selector', 'a=b'], /--node-selector needs --kubernetes/],
  [['m', '--kubernetes', '--node-selector', 'a b'], /"a b" is not LABEL=VALUE/],
  [['m', '--kubernetes', '--image', 'a b'], /"a b" is not the name of a container image/],
  [['m', '--kubernetes', '--time', 'soon'], /not a time limit/],
  [['m.gguf', '--kubernetes'], /needs --image/],
])('%j is refused', (args, words) => {
  expect(() => wish(...args)).toThrow(words);
});

const labels = podLabels({ id: 'abcd1234' });
const pod = (status: object, metadata: object = {}) =>
  JSON.stringify({ metadata: { labels, ...metadata }, spec: { nodeName: 'n1' }, status });
const container = (state: object) => ({ containerStatuses: [{ name: 'proxy' }, { name: 'engine', state }] });
const waiting = (reason: string, message = '') => ({
  phase: 'Pending',
  ...container({ waiting: { reason, message } }),
});

it.each<[string, string, object]>([
  ['no pod', '', { kind: 'missing' }],
  [
    'no node with free GPUs',
    pod({
      phase: 'Pending',
      conditions: [{ type: 'PodScheduled', status: 'False', message: '0/3 nodes: 3 Insufficient nvidia.com/gpu.' }],
    }),
    { kind: 'waits', said: '0/3 nodes: 3 Insufficient nvidia.com/gpu.' },
  ],
  ['an image that is fetched', pod(waiting('ContainerCreating')), { kind: 'waits', said: 'ContainerCreating' }],
  [
    'an image that does not exist',
    pod(waiting('ImagePullBackOff', 'not found')),
    { kind: 'stuck', said: 'ImagePullBackOff: not found' },
  ],
  [
    'words with control characters',
    pod(waiting('ImagePullBackOff', 'a\u001b[2Jb\u202ec\nd')),
    { kind: 'stuck', said: 'ImagePullBackOff: a [2Jb c d' },
  ],
  ['running', pod({ phase: 'Running', ...container({ running: {} }) }), { kind: 'running', node: 'n1' }],
  [
    'the time limit',
    pod({ phase: 'Failed', reason: 'DeadlineExceeded', message: 'Pod was active too long' }),
    { kind: 'ended', said: 'Pod was active too long: DeadlineExceeded' },
  ],
  ['deleted', pod({ phase: 'Running' }, { deletionTimestamp: 'now' }), { kind: 'ended' }],
  [
    'a pod of another run',
    pod({ phase: 'Running' }, { labels: { ...labels, 'app.kubernetes.io/instance': 'other' } }),
    { kind: 'foreign' },
  ],
  ['a pod without labels', pod({ phase: 'Running' }, { labels: undefined }), { kind: 'foreign' }],
])('state of a pod: %s', (_, out, state) => {
  expect(parsePodState(out, labels)).toMatchObject(state);
});

it.each(['[]', 'no JSON', '{}', JSON.stringify({ metadata: {}, status: 'Running' })])('%s is not a pod', (out) => {
  expect(parsePodState(out, labels)).toBeUndefined();
});

const config =
  (value: unknown): RunCommand =>
  async () => ({ kind: 'done', code: 0, errors: '', out: JSON.stringify(value) });
const CONFIG = {
  'current-context': 'me@lab',
  contexts: [
    { name: 'me@lab', context: { namespace: 'ml' } },
    { name: 'other', context: {} },
    { name: '--kubeconfig=x', context: {} },
  ],
};

it('the place is that of kubectl, and the name of the run keeps it', async () => {
  const none = { context: undefined, namespace: undefined };
  const found = await findPlace(config(CONFIG), none);
  expect(found).toEqual({ context: 'me@lab', namespace: 'ml' });
  expect(kubernetesPlace(kubernetesHost(found))).toEqual(found);
  expect(kubernetesPlace('me@login')).toBeUndefined();
  expect(await findPlace(config(CONFIG), { ...none, context: 'other' })).toEqual({
    context: 'other',
    namespace: 'default',
  });
  const refused = async (value: unknown, wished: object, words: RegExp) =>
    expect(findPlace(config(value), { ...none, ...wished })).rejects.toThrow(words);
  await refused(CONFIG, { context: 'gone' }, /no context gone.*\n.*get-contexts/);
  await refused({ contexts: null }, {}, /no current context/);
  await refused('text', {}, /no current context/);
  await refused(CONFIG, { context: '--kubeconfig=x' }, /--context/);
  await refused(CONFIG, { namespace: '-x' }, /--namespace/);
  await expect(findPlace(async () => ({ kind: 'missing', errors: 'kubectl: ENOENT' }), none)).rejects.toThrow(
    /no kubectl/,
  );
});

it.each([
  ['may exist if the answer was lost', "echo 'unexpected EOF' >&2; exit 1", [true]],
  ['may exist if kubectl was killed', 'kill -9 $$', [true]],
  [
    'does not exist if it was refused',
    `echo 'Error from server (Forbidden): pods "x" is forbidden: exceeded quota' >&2; exit 1`,
    [true, false],
  ],
])('a pod %s', async (_, create, expected) => {
  const bin = await temporaryDirectory('otela-kubectl');
  const kubectl = `#!/bin/bash\ncase " $* " in *' create '*) ${create} ;; esac\n`;
  await writeFile(join(bin, 'kubectl'), kubectl, { mode: 0o755 });
  vi.stubEnv('PATH', `${bin}:${process.env.PATH}`);
  const created: boolean[] = [];
  const { kubernetes } = wish('m', '--kubernetes');
  if (kubernetes === undefined) throw new Error('no pod');
  const start = new KubernetesPod({ context: 'me@lab', namespace: 'ml' }, { id: 'abcd1234', model: 'm' }).start({
    wish: kubernetes,
    step: () => {},
    created: (mayExist) => created.push(mayExist),
    signal: new AbortController().signal,
  });
  await expect(start).rejects.toThrow(/Kubernetes refuses/);
  expect(created).toEqual(expected);
});

/** Flags of `otela up`. */
import { resolve } from 'node:path';
import { type Flags, type ParsedFlags, UsageError } from '../../shared/command-line/index.ts';
import { durationMs } from '../../shared/text/duration.ts';
import { parseSource } from '../../shared/weights/weights-source.ts';
import { THIS_MACHINE } from '../host/host.ts';
import type { PodWish } from '../host/kubernetes/pod-manifest.ts';
import { GPU_RESOURCES, podWish } from '../host/kubernetes/pod-wish.ts';
import { sshHost } from '../host/openssh.ts';
import { type EngineWish, LLAMA_SERVER } from '../job/job-plan.ts';
import type { PoolWish } from '../site/choose-pool.ts';

/** Maximum of --keep and --idle. */
const KEEP_MAX_MS = 30 * 86_400_000;

export const HOST_FLAG = {
  host: { value: 'HOST', help: 'the login node or workstation, as after ssh: me@login.example.org' },
} as const;

export const UP_FLAGS = {
  host: { ...HOST_FLAG.host, otherwise: 'this machine' },
  partition: { value: 'NAME', help: 'partition of the job', otherwise: 'one with GPUs that starts jobs now' },
  account: { value: 'NAME', help: 'Slurm account that is charged', otherwise: 'your default' },
  gpu: { value: 'KIND', help: 'kind of GPU: a100, h100, …' },
  gpus: { value: 'N', default: '1', help: 'number of GPUs' },
  time: { value: 'TIME', help: 'time limit of the job: 04:00:00', otherwise: '4 hours, or the limit of the partition' },
  keep: {
    value: 'DURATION',
    help: 'start the next job before the time limit of each, without a gap, for this long: 3d',
    otherwise: 'one job',
  },
  cold: { help: 'start the job when a request comes, and end it when none comes' },
  idle: { value: 'DURATION', default: '10m', help: 'with --cold: end the job after this time without a request' },
  engine: {
    value: 'NAME',
    takes: ['vllm', 'sglang', 'lmdeploy'],
    help: 'engine',
    otherwise: 'the first of these on the PATH of the host',
  },
  'engine-argument': {
    value: 'WORD',
    repeat: true,
    help: 'further argument of the engine: --engine-argument=--max-model-len=8192',
  },
  command: {
    value: 'COMMAND',
    rest: true,
    help: 'command of another engine; {{port}} and {{model}} are replaced; also after --',
  },
  image: {
    value: 'FILE',
    help: 'Apptainer image with the engine, a path on the host; with --kubernetes a container image',
  },
  setup: { value: 'LINE', repeat: true, help: "shell line that runs before the engine: 'module load vllm'" },
  fetch: { help: 'fetch the weights before the job starts, for compute nodes without a way to the Internet' },
  'sbatch-option': { value: 'OPTION', repeat: true, help: 'further option of sbatch without dashes: qos=short' },
  kubernetes: { help: 'run the engine in a pod of a Kubernetes cluster, by kubectl' },
  context: { value: 'NAME', help: 'with --kubernetes: context of kubectl', otherwise: 'the current one' },
  namespace: { value: 'NAME', help: 'with --kubernetes: namespace of the pod', otherwise: 'that of the context' },
  'node-selector': {
    value: 'LABEL=VALUE',
    repeat: true,
    help: 'with --kubernetes: nodes with this label: nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3',
  },
  'gpu-resource': {
    value: 'NAME',
    default: 'nvidia.com/gpu',
    takes: GPU_RESOURCES,
    help: 'with --kubernetes: name of the GPUs as a resource',
  },
  'no-slurm': { help: 'run the engine on the host itself, and not in a Slurm job' },
  'relay-address': {
    value: 'ADDRESS',
    help: 'address of the login node in the network of the compute nodes',
    otherwise: 'found by its routes',
  },
  rm: { help: 'end the job that this command submitted when the command ends' },
  json: { help: 'print one line of JSON when the model answers: url, api_key, model' },
  agent: { value: 'FILE', takes: 'file', help: 'single-file agent of a release', otherwise: 'made here' },
} as const satisfies Flags;

export interface UpWish {
  model: string;
  host: string;
  pool: PoolWish;
  engine: EngineWish;
  /** For how long jobs follow each other; undefined: one job. */
  keepMs: number | undefined;
  /** A job ends after this time without a request, and a request starts the next one; undefined: jobs stay. */
  idleMs: number | undefined;
  relayAddress: string | undefined;
  /** The engine's pod, if the host is a Kubernetes cluster. */
  kubernetes: PodWish | undefined;
  agent: string | undefined;
  /** True if the engine runs on the host itself even if the host has Slurm. */
  noSlurm: boolean;
  /** True if the weights are fetched before the job starts. */
  fetches: boolean;
  /** True if the job ends with this command. */
  endsJob: boolean;
  json: boolean;
}

type UpValues = ParsedFlags<typeof UP_FLAGS>;

/** Flags that have no meaning in Kubernetes, and those that have one only there. */
const NOT_KUBERNETES = [
  'host',
  'partition',
  'account',
  'gpu',
  'keep',
  'cold',
  'fetch',
  'sbatch-option',
  'no-slurm',
  'relay-address',
] as const;
const ONLY_KUBERNETES = ['context', 'namespace', 'node-selector'] as const;

/** @throws UsageError if a flag does not fit the kind of host */
export function requireFitting(values: UpValues): void {
  const isGiven = (name: keyof UpValues) => {
    const value = values[name];
    return Array.isArray(value) ? value.length > 0 : value !== undefined && value !== false;
  };
  const wrong = (values.kubernetes ? NOT_KUBERNETES : ONLY_KUBERNETES).find(isGiven);
  if (wrong === undefined) return;
  throw new UsageError(
    values.kubernetes ? `--kubernetes and --${wrong} exclude each other` : `--${wrong} needs --kubernetes`,
  );
}

/**
 * @param cluster the host, if it is a Kubernetes cluster
 * @throws UsageError
 */
export function upWish(
  values: UpValues,
  words: readonly string[],
  command: string[] | undefined,
  cluster: string | undefined,
): UpWish {
  const [model] = words;
  if (model === undefined)
    throw new UsageError('a model is missing: otela up Qwen/Qwen3-8B --host me@login.example.org');
  const gpus = Number(values.gpus);
  if (!Number.isInteger(gpus) || gpus < 1 || gpus > 64) throw new UsageError('--gpus must be from 1 to 64');
  if (values.keep !== undefined && values.cold) throw new UsageError('--keep and --cold exclude each other');
  if (values.fetch && parseSource(`hub:${model}`) === undefined)
    throw new UsageError(`--fetch: "${model}" is not the name of a repository of the hub, such as Qwen/Qwen3-8B`);
  if (command?.length === 0) throw new UsageError('the command after -- is empty');
  if (command !== undefined && !command.some((word) => word.includes('{{port}}')))
    throw new UsageError('the command after -- must contain {{port}}, the port at which the engine must listen');
  return {
    model,
    host: cluster ?? (values.host === undefined ? THIS_MACHINE : sshHost(values.host)),
    pool: { partition: values.partition, gpu: values.gpu, gpus, time: values.time },
    engine: {
      engine: values.engine,
      command: command ?? ggufCommand(model, values),
      needsLlama: command === undefined && isGguf(model),
      arguments: values['engine-argument'],
      // A pod has the image itself.
      image: cluster === undefined ? values.image : undefined,
      gpus,
      account: values.account,
      setup: values.setup,
      sbatchOptions: values['sbatch-option'],
      isOffline: values.fetch,
    },
    keepMs: values.keep === undefined ? undefined : durationOf('keep', values.keep),
    idleMs: values.cold ? durationOf('idle', values.idle) : undefined,
    relayAddress: values['relay-address'],
    kubernetes: cluster === undefined ? undefined : podWish(values, gpus, command !== undefined || isGguf(model)),
    agent: values.agent,
    noSlurm: values['no-slurm'] || cluster !== undefined,
    fetches: values.fetch,
    endsJob: values.rm,
    json: values.json,
  };
}

/** @throws UsageError */
function durationOf(flag: string, text: string): number {
  const ms = durationMs(text);
  if (ms === undefined || ms <= 0 || ms > KEEP_MAX_MS)
    throw new UsageError(`--${flag}: "${text}" is not a duration such as 10m or 3d, at most 30d`);
  return ms;
}

const isGguf = (model: string): boolean => /\.gguf$/i.test(model);

/** The command that serves a GGUF file; undefined for another model. A relative path is one of this machine or of the home there. */
function ggufCommand(model: string, values: UpValues): string[] | undefined {
  if (!isGguf(model)) return undefined;
  const name = model.replace(/^.*\//, '').slice(0, -'.gguf'.length);
  const file = values.host === undefined && !values.kubernetes ? resolve(model) : model;
  const more = values['engine-argument'];
  return [LLAMA_SERVER, '-m', file, '--alias', name, '--host', '127.0.0.1', '--port', '{{port}}', ...more];
}

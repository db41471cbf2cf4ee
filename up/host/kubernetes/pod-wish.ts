/** The pod that the flags of `otela up --kubernetes` describe. */
import { GPU_RESOURCE } from '../../../factory/launchers/kubernetes.ts';
import { timeLimitMs } from '../../../node/batch-systems/time-limit.ts';
import { UsageError } from '../../../shared/command-line/index.ts';
import type { PodWish } from './pod-manifest.ts';

/** Published images of the engines. */
const IMAGES: Readonly<Record<string, string>> = {
  vllm: 'vllm/vllm-openai:latest',
  sglang: 'lmsysorg/sglang:latest',
  lmdeploy: 'openmmlab/lmdeploy:latest',
};

/** Labels of nodes: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/ */
const LABEL = /^((?:[a-z0-9.-]{1,253}\/)?[A-Za-z0-9][\w.-]{0,62})=([\w.-]{0,63})$/;

/** A reference to an image: https://github.com/distribution/reference */
const IMAGE = /^[a-z0-9][\w./:@-]{0,499}$/i;

interface PodFlags {
  image: string | undefined;
  engine: string | undefined;
  time: string | undefined;
  'gpu-resource': string;
  'node-selector': readonly string[];
}

/** @param needsImage true if the engine's command is given, so that no image is known. @throws UsageError */
export function podWish(values: PodFlags, gpus: number, needsImage: boolean): PodWish {
  const image = values.image ?? (needsImage ? undefined : IMAGES[values.engine ?? 'vllm']);
  if (image === undefined) throw new UsageError('--kubernetes needs --image IMAGE for this command');
  if (!IMAGE.test(image)) throw new UsageError(`--image: "${image}" is not the name of a container image`);
  const ms = values.time === undefined ? undefined : timeLimitMs(values.time);
  if (values.time !== undefined && ms === undefined)
    throw new UsageError(`--time: "${values.time}" is not a time limit such as 04:00:00`);
  return {
    image,
    gpus,
    resource: values['gpu-resource'],
    seconds: ms === undefined ? undefined : Math.floor(ms / 1_000),
    nodeSelector: Object.fromEntries(values['node-selector'].map(label)),
  };
}

function label(text: string): [string, string] {
  const [, name, value = ''] = LABEL.exec(text) ?? [];
  if (name === undefined) throw new UsageError(`--node-selector: "${text}" is not LABEL=VALUE`);
  return [name, value];
}

export const GPU_RESOURCES = Object.values(GPU_RESOURCE);

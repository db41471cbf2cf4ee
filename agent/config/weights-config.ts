import { accessSync, constants, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { UsageError } from '../../shared/command-line/index.ts';
import { FANOUT } from '../../shared/weights/blob-coordinator.ts';
import { parseSource, sourceText } from '../../shared/weights/weights-source.ts';
import type { NodeWeightsConfig } from '../weights/weights-config.ts';
import { type Env, listSetting, plainText, type SettingReader, valueSetting, wholeNumber } from './setting.ts';

export const SOURCES_MAX = 16;
const UPLOADS_MAX = 64;
const CLUSTERS_MAX = 16;
/** Share of the disk that weights may use. The rest is for logs, results and the engine's files. */
const DISK_SHARE = 0.8;
/** Share of the memory that weights may use. The engine needs the rest. */
const MEMORY_SHARE = 0.5;
/** `f_type` of tmpfs (statfs(2)). */
const TMPFS = 0x01021994;
const UNITS = ['', 'K', 'M', 'G', 'T'];

export const WEIGHTS_SETTINGS = {
  sources: listSetting({
    flag: 'weights',
    env: 'OTELA_WEIGHTS',
    value: 'SOURCE',
    help: 'weights to copy to local disk before the engine starts: hub:ORG/NAME[@REVISION], dir:/PATH or s3://BUCKET/PREFIX; {{weights}} in the command becomes the directory of the first source',
    parse: parseSources,
  }),
  environment: valueSetting({
    flag: 'environment',
    env: 'OTELA_ENVIRONMENT',
    value: 'SOURCE',
    help: "the engine's environment, copied to local disk before it starts: a packed venv or conda environment (.tar, .tar.gz, .tar.zst), or an image (.sif, .sqsh); {{environment}} in the command becomes its directory or file",
    parse: (text) => sourceNamed('--environment', text),
  }),
  directory: valueSetting({
    flag: 'weights-dir',
    env: 'OTELA_WEIGHTS_DIR',
    value: 'DIR',
    help: 'directory for weights, in the layout of a Hugging Face cache; other nodes of the cluster can copy them from here',
    otherwise:
      'with --weights or --environment: $SLURM_TMPDIR; otherwise $TMPDIR or /tmp if it is not in memory; otherwise /dev/shm',
    parse: plainText,
    unset: ({ env }) => join(localPlace(env), `otela-weights-${process.getuid?.() ?? 0}`),
  }),
  limitBytes: valueSetting({
    flag: 'weights-max',
    env: 'OTELA_WEIGHTS_MAX',
    value: 'SIZE',
    help: 'maximum disk space for weights, for example 500GB; above it, the least recently used weights are deleted',
    otherwise: '80 % of the disk; half of it if it is in memory',
    parse: (text) => bytesOf('--weights-max', text),
  }),
  rate: valueSetting({
    flag: 'weights-rate',
    env: 'OTELA_WEIGHTS_RATE',
    value: 'SIZE',
    help: 'maximum bytes per second of all transfers of weights to other nodes, for example 500MB',
    otherwise: 'no limit',
    parse: (text) => bytesOf('--weights-rate', text),
  }),
  uploads: valueSetting({
    flag: 'weights-uploads',
    env: 'OTELA_WEIGHTS_UPLOADS',
    value: 'N',
    help: 'maximum nodes that weights are sent to at a time',
    default: String(FANOUT),
    parse: (text) => wholeNumber('--weights-uploads', text, UPLOADS_MAX),
  }),
  clusters: listSetting({
    flag: 'weights-clusters',
    env: 'OTELA_WEIGHTS_CLUSTERS',
    value: 'CLUSTER',
    help: 'other clusters to exchange weights with (CLUSTER@ISSUER if it has another issuer)',
    otherwise: 'none',
    parse: parseClusters,
  }),
};

/** Undefined if this node stores no weights. @throws UsageError */
export function weightsConfig(reader: SettingReader): NodeWeightsConfig | undefined {
  const { sources: weights, environment: packed, directory: stored, ...limits } = WEIGHTS_SETTINGS;
  if (!reader.has(weights, packed, stored)) {
    if (!reader.has(...Object.values(limits))) return undefined;
    throw new UsageError('--weights-… has no effect without --weights, --environment or --weights-dir');
  }
  const config = reader.read(WEIGHTS_SETTINGS);
  return { ...config, limitBytes: config.limitBytes ?? shareOf(config.directory) };
}

function parseSources(texts: readonly string[]): string[] {
  if (texts.length > SOURCES_MAX) throw new UsageError(`--weights: at most ${SOURCES_MAX} are allowed`);
  return texts.map((text) => sourceNamed('--weights', text));
}

function parseClusters(texts: readonly string[]): readonly string[] {
  if (texts.length > CLUSTERS_MAX) throw new UsageError(`--weights-clusters: at most ${CLUSTERS_MAX} are allowed`);
  return texts;
}

function sourceNamed(flag: string, text: string): string {
  const source = parseSource(text);
  if (source === undefined)
    throw new UsageError(`${flag}: "${text}" is not hub:ORG/NAME[@REVISION], dir:/PATH or s3://BUCKET/PREFIX`);
  return sourceText(source);
}

/**
 * A directory for weights: on the job's own disk, otherwise on the node's disk, otherwise in memory. Never on the
 * shared file system of the home directory.
 */
function localPlace(env: Env): string {
  const places = [env.SLURM_TMPDIR, env.TMPDIR, '/tmp'].filter((place) => place !== undefined && place !== '');
  const writable = places.filter((place) => place !== undefined && isWritable(place));
  const disk = writable.find((place) => place !== undefined && fileSystem(place)?.type !== TMPFS);
  return disk ?? (isWritable('/dev/shm') ? '/dev/shm' : '/tmp');
}

function isWritable(place: string): boolean {
  try {
    accessSync(place, constants.W_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function fileSystem(place: string): { type: number; bytes: number } | undefined {
  try {
    const { type, blocks, bsize } = statfsSync(place);
    return { type, bytes: blocks * bsize };
  } catch {
    return undefined;
  }
}

function shareOf(directory: string): number {
  for (let at = directory; ; at = join(at, '..')) {
    const found = fileSystem(at);
    if (found !== undefined) return Math.floor(found.bytes * (found.type === TMPFS ? MEMORY_SHARE : DISK_SHARE));
    if (at === '/' || at === '.') return 0;
  }
}

/** Parses sizes such as `500GB`, `2T`, `1.5TiB` and `1000000`. Units with `i` are powers of 1024. */
function bytesOf(flag: string, text: string): number {
  const [, number = '', unit = '', binary] = /^(\d{1,15}(?:\.\d{1,3})?)(?:([KMGT])(i)?)?B?$/i.exec(text) ?? [];
  const bytes = Math.floor(Number(number) * (binary ? 1024 : 1000) ** UNITS.indexOf(unit.toUpperCase()));
  if (number !== '' && bytes >= 1) return bytes;
  throw new UsageError(`${flag}: "${text}" is not a size such as 500GB`);
}

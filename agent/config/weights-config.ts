import { accessSync, constants, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { UsageError } from '../../shared/command-line/index.ts';
import { FANOUT } from '../../shared/weights/coordinator.ts';
import { parseSource, sourceText } from '../../shared/weights/source.ts';
import type { NodeWeightsConfig } from '../weights/config.ts';
import type { Env } from './setting-sources.ts';

interface Given {
  sources: readonly string[];
  environment: string | undefined;
  directory: string | undefined;
  limit: string | undefined;
  rate: string | undefined;
  uploads: string | undefined;
  clusters: readonly string[];
}

export const SOURCES_MAX = 16;
const UPLOADS_MAX = 64;
const CLUSTERS_MAX = 16;
/** The rest is for logs, results and the engine's own files. */
const DISK_SHARE = 0.8;
/** Engines need the other half. */
const MEMORY_SHARE = 0.5;
/** `f_type` of tmpfs (statfs(2)). */
const TMPFS = 0x01021994;
const UNITS: Readonly<Record<string, number>> = { '': 1, K: 1e3, M: 1e6, G: 1e9, T: 1e12 };

/** Undefined: this node stores no weights. @throws UsageError */
export function weightsConfig(given: Given, env: Env): NodeWeightsConfig | undefined {
  const { sources, environment, directory, limit, rate, uploads, clusters } = given;
  if (sources.length === 0 && environment === undefined && directory === undefined) {
    if ([limit, rate, uploads].every((one) => one === undefined) && clusters.length === 0) return undefined;
    throw new UsageError('--weights-… is of no use without --weights, --environment or --weights-dir');
  }
  if (sources.length > SOURCES_MAX) throw new UsageError(`--weights: at most ${SOURCES_MAX}`);
  if (clusters.length > CLUSTERS_MAX) throw new UsageError(`--weights-clusters: at most ${CLUSTERS_MAX}`);
  const place = directory ?? join(localPlace(env), `otela-weights-${process.getuid?.() ?? 0}`);
  return {
    sources: sources.map((text) => sourceNamed('--weights', text)),
    environment: environment === undefined ? undefined : sourceNamed('--environment', environment),
    directory: place,
    limitBytes: limit === undefined ? shareOf(place) : bytesOf('--weights-max', limit),
    rate: rate === undefined ? undefined : bytesOf('--weights-rate', rate),
    uploads: uploads === undefined ? FANOUT : count(uploads),
    clusters,
  };
}

function sourceNamed(flag: string, text: string): string {
  const source = parseSource(text);
  if (source === undefined)
    throw new UsageError(`${flag}: "${text}" is none of hub:ORG/NAME[@REVISION], dir:/PATH, s3://BUCKET/PREFIX`);
  return sourceText(source);
}

/** The job's own disk, otherwise the node's, otherwise its memory. Never the home's shared file system. */
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

/** `500GB`, `2T`, `1000000`. */
function bytesOf(flag: string, text: string): number {
  const [, number = '', unit = ''] = /^(\d{1,15}(?:\.\d{1,3})?)([KMGT]?)i?B?$/i.exec(text) ?? [];
  const bytes = Math.floor(Number(number) * (UNITS[unit.toUpperCase()] ?? 1));
  if (number !== '' && bytes >= 1) return bytes;
  throw new UsageError(`${flag}: "${text}" is not a size such as 500GB`);
}

function count(text: string): number {
  const value = /^\d{1,2}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= 1 && value <= UPLOADS_MAX) return value;
  throw new UsageError(`--weights-uploads: "${text}" is not a number from 1 to ${UPLOADS_MAX}`);
}

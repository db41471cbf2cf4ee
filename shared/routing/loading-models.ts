/** Models that no node serves yet because their engines are still loading, and how long that usually takes. */
import type { RegistryEntry } from '../lattice/node-record.ts';
import type { ModelNodes } from './node-index.ts';
import { isTrusted, type Trust } from './trusted-providers.ts';

export interface ModelStart {
  /** Number of nodes that load the model. */
  nodes: number;
  /** Milliseconds since the first of these nodes began to load it. */
  runningMs: number;
  /** The longest start in the list of known sessions, in ms. Undefined if no start is known. */
  usualMs: number | undefined;
}

/**
 * A shorter start does not count, because a session that replaces another session of the same agent serves without
 * loading the model again.
 */
const START_MIN_MS = 1_000;

/** How far the start of a model has come. Undefined if a trusted node already serves the model, or if none loads it. */
export function modelStart(nodes: ModelNodes | undefined, trust: Trust, now: number): ModelStart | undefined {
  if (nodes === undefined) return undefined;
  const { id } = nodes;
  const trusted = nodes.all.filter((entry) => isTrusted(trust, entry));
  if (trusted.some(({ state }) => state === 'SERVING')) return undefined;
  const loading = trusted.filter((entry) => isLoading(entry, id));
  if (loading.length === 0) return undefined;
  const running = loading.map(({ joined_at }) => Math.max(0, now - time(joined_at)));
  const starts = nodes.all.flatMap(startMs).filter((ms) => ms >= START_MIN_MS);
  return {
    nodes: loading.length,
    runningMs: Math.max(...running),
    usualMs: starts.length === 0 ? undefined : Math.max(...starts),
  };
}

/**
 * Expected milliseconds until the model serves. Undefined if the usual time is unknown, or if this start has already
 * taken longer.
 */
export function remainingMs({ runningMs, usualMs }: ModelStart): number | undefined {
  return usualMs === undefined || usualMs <= runningMs ? undefined : usualMs - runningMs;
}

/** True if the session has begun to load the model and has never served. */
export function isLoading({ state, models }: Pick<RegistryEntry, 'state' | 'models'>, model: string): boolean {
  return state === 'JOIN' && models.some(({ id, state: how }) => id === model && how === 'loading');
}

function startMs({ joined_at, serving_since }: RegistryEntry): number | [] {
  return serving_since === undefined ? [] : time(serving_since) - time(joined_at);
}

function time(text: string): number {
  // biome-ignore lint/style/noRestrictedGlobals: reads a text, asks no clock
  return Date.parse(text);
}

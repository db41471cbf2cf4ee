/** The list of a source's files: from the disk while it is fresh, from another node of the same provider, or from the source. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Manifest } from '../../shared/weights/manifest.ts';
import { type Source, sourceText } from '../../shared/weights/source.ts';
import type { WeightsClient } from './client.ts';
import type { Coordination } from './coordination.ts';
import { asWeightsError, WeightsError } from './error.ts';
import type { BlobSource } from './sources/source.ts';
import type { Store } from './store.ts';

/** A list of what may change is read anew after this. */
const FRESH_MS = 10 * 60_000;
const WAIT_MS = 250;

export interface ManifestPullOptions {
  id: string;
  /** The list's key at its coordinator. */
  key: string;
  source: Source;
  reader: BlobSource;
  store: Store;
  client: WeightsClient;
  coordination: Coordination;
  giveUpMs: number;
  now(): number;
  log(line: string): void;
}

/** @throws WeightsError */
export async function pullManifest(options: ManifestPullOptions, signal: AbortSignal): Promise<Manifest> {
  const { id, source, store, now, log } = options;
  const kept = await store.manifests.get(id);
  const isFixed = source.kind === 'hub' && /^[0-9a-f]{40}$/.test(source.revision);
  const age = now() - (kept?.readAt ?? 0);
  // Below 0: the clock was set back.
  if (kept !== undefined && (isFixed || (age >= 0 && age < FRESH_MS))) return kept.manifest;
  try {
    const { manifest, readAt } = await fetched(options, signal);
    if (manifest.source !== sourceText(source)) throw new WeightsError('wrong', 'a list of another source');
    // Another node's clock may be ahead.
    await store.manifests.save(id, manifest, Math.min(readAt, now()));
    return manifest;
  } catch (error) {
    if (kept === undefined || signal.aborted) throw error;
    log(
      `weights: ${sourceText(source)} cannot be listed (${asWeightsError(error).message}); taking what was there before`,
    );
    return kept.manifest;
  }
}

async function fetched(
  options: ManifestPullOptions,
  signal: AbortSignal,
): Promise<{ manifest: Manifest; readAt: number }> {
  const { id, key, reader, client, coordination, giveUpMs, now } = options;
  const { standing } = coordination;
  const until = performance.now() + giveUpMs;
  let trouble: WeightsError | undefined;
  while (performance.now() < until) {
    const role = trouble === undefined ? 'wants' : 'cannot';
    const avoid = standing.avoided(performance.now()).slice(0, 64);
    const answer = await coordination.ask({ blob: key, role, avoid }, true);
    if (answer.kind === 'read')
      try {
        return { manifest: await reader.list(signal), readAt: now() };
      } catch (error) {
        trouble = asWeightsError(error);
        if (coordination.alone) throw trouble;
        // Another node may have it, or be able to read it.
        if (trouble.code === 'wrong') throw trouble;
      }
    if (answer.kind === 'peer')
      try {
        return await client.manifest(answer.session, id, signal);
      } catch (error) {
        // 404: it has not come there yet.
        if (asWeightsError(error).code !== 'unavailable') standing.bad(answer.session, performance.now());
      }
    if (trouble !== undefined && coordination.alone) throw trouble;
    await delay(WAIT_MS, undefined, { signal }).catch((cause: unknown) => {
      throw new WeightsError('stopped', 'the pull was given up', { cause });
    });
  }
  throw trouble ?? new WeightsError('unavailable', 'no node has the list, and none reads it');
}

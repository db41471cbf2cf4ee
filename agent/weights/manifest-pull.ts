/**
 * The manifest of a source: from the disk while it is fresh, from another node of the same provider, or from the
 * source.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { WeightsManifest } from '../../shared/weights/weights-manifest.ts';
import { type Source, sourceText } from '../../shared/weights/weights-source.ts';
import type { CoordinatorClient } from './coordinator-client.ts';
import type { BlobSource } from './sources/blob-source.ts';
import { isFresh } from './stored-manifests.ts';
import type { WeightsClient } from './weights-client.ts';
import type { PullLimits } from './weights-config.ts';
import { asWeightsError, WeightsError } from './weights-error.ts';
import type { Store } from './weights-store.ts';

const WAIT_MS = 250;
/** Maximum time for which other nodes are asked for a manifest, before and again after the source failed. */
const GIVE_UP_MS = 60_000;
/** Interval at which a node reports that it still lists the source. It is shorter than the coordinator's lease. */
const READS_MS = 5_000;
/** Maximum number of listings in one pull. A source that changes more often is being written. */
const LISTS_MAX = 3;

interface ManifestPullOptions {
  id: string;
  /** The manifest's key at its coordinator while the manifest is fresh. */
  key: string;
  /** The manifest's key at its coordinator when it is no longer fresh. */
  olderKey: string;
  source: Source;
  reader: BlobSource;
  store: Store;
  client: WeightsClient;
  coordination: CoordinatorClient;
  limits: Pick<PullLimits, 'giveUpMs' | 'listWithinMs' | 'sourceAfterMs'>;
  /** True if the source has changed. Then it is listed again, and stored manifests are not used. */
  relist: boolean;
  now(): number;
  log(line: string): void;
}

/** Runs a pull. Restarts it with a new manifest if its source has changed since it was listed. */
export async function retryWithNewListing<T>(
  log: (line: string) => void,
  pull: (relist: boolean) => Promise<T>,
): Promise<T> {
  for (let lists = 1; ; lists++) {
    try {
      return await pull(lists > 1);
    } catch (error) {
      const { code, message } = asWeightsError(error);
      if (code !== 'changed' || lists >= LISTS_MAX) throw error;
      log(`weights: ${message}; listing it again`);
    }
  }
}

/** @throws WeightsError */
export async function pullManifest(options: ManifestPullOptions, signal: AbortSignal): Promise<WeightsManifest> {
  const { id, source, store, relist, now, log } = options;
  if (relist) {
    const manifest = await listOf(options, signal);
    await store.room.recorded(id, () => store.manifests.save(id, manifest, now()));
    return manifest;
  }
  const kept = await store.manifests.get(id);
  if (kept !== undefined && isFresh(kept, now())) return kept.manifest;
  try {
    const { manifest, readAt } = await fetched(options, signal);
    if (manifest.source !== sourceText(source)) throw new WeightsError('wrong', 'the list is from a different source');
    if (kept !== undefined && kept.readAt > readAt) return kept.manifest;
    await store.room.recorded(id, () => store.manifests.save(id, manifest, readAt));
    return manifest;
  } catch (error) {
    if (kept === undefined || signal.aborted) throw error;
    log(`weights: ${sourceText(source)} cannot be listed (${asWeightsError(error).message}); using the earlier list`);
    return kept.manifest;
  }
}

/** @throws WeightsError */
async function listOf({ source, reader, limits }: ManifestPullOptions, signal: AbortSignal): Promise<WeightsManifest> {
  const { listWithinMs = limits.listWithinMs } = reader;
  const late = AbortSignal.timeout(listWithinMs);
  return reader.list(AbortSignal.any([signal, late])).catch((error: unknown) => {
    if (!late.aborted) throw error;
    throw new WeightsError('unavailable', `${sourceText(source)} did not list its files in ${listWithinMs / 1000} s`);
  });
}

/** Other nodes wait for this one only while it reports that it reads the source. */
async function listWhileReporting(options: ManifestPullOptions, signal: AbortSignal): Promise<WeightsManifest> {
  const { coordination, key } = options;
  const report = () => neverRejects(coordination.ask({ blob: key, role: 'reads' }, true));
  const timer = setInterval(report, READS_MS);
  try {
    return await listOf(options, signal);
  } finally {
    clearInterval(timer);
  }
}

interface Listed {
  manifest: WeightsManifest;
  readAt: number;
}

/**
 * Returns a fresh manifest from another node or from the source. If the source cannot be read, the manifest may be of
 * any age.
 */
async function fetched(options: ManifestPullOptions, signal: AbortSignal): Promise<Listed> {
  const { id, key, olderKey, client, coordination, limits, reader, now } = options;
  const { listWithinMs = 0 } = reader;
  const giveUpMs = Math.max(listWithinMs, Math.min(GIVE_UP_MS, limits.giveUpMs));
  const sourceAfterMs = Math.max(listWithinMs, limits.sourceAfterMs);
  const { senders } = coordination;
  const began = performance.now();
  let until = began + giveUpMs;
  let trouble: WeightsError | undefined;
  let older: Listed | undefined;
  /** Nodes that offered their manifest as fresh although it was not. */
  const tooOld = new Set<string>();
  while (performance.now() < until) {
    const role = trouble === undefined ? 'wants' : 'cannot';
    const avoid = [...tooOld, ...senders.blocked(performance.now())].slice(0, 64);
    let answer = await coordination.ask({ blob: key, role, avoid }, true);
    if (trouble !== undefined && answer.kind === 'wait')
      answer = await coordination.ask({ blob: olderKey, role, avoid }, true);
    // Another node claims to read the manifest, and does not finish. So read the source here.
    if (trouble === undefined && answer.kind === 'wait' && performance.now() - began > sourceAfterMs) {
      await coordination.ask({ blob: key, role: 'reads' }, true);
      answer = { kind: 'read' };
    }
    if (answer.kind === 'read')
      try {
        return { manifest: await listWhileReporting(options, signal), readAt: now() };
      } catch (error) {
        // The source failed. From now on, ask other nodes for `giveUpMs` again.
        if (trouble === undefined) until = performance.now() + giveUpMs;
        trouble = asWeightsError(error);
        if (older !== undefined) return older;
        if (coordination.alone) throw trouble;
        // Continue if the source cannot be read now, because another node may have the manifest or be able to read the
        // source.
        if (trouble.code === 'wrong') throw trouble;
      }
    if (answer.kind === 'peer')
      try {
        const { manifest, readAt } = await client.manifest(answer.session, id, signal);
        // The other node's clock may be ahead of this one's.
        const found = { manifest, readAt: Math.min(readAt, now()) };
        if (trouble !== undefined || isFresh(found, now())) return found;
        tooOld.add(answer.session);
        if (older === undefined || found.readAt > older.readAt) older = found;
        continue;
      } catch (error) {
        // Status 404: the manifest has not arrived at that node yet.
        if (asWeightsError(error).code !== 'unavailable') senders.failed(answer.session, performance.now());
      }
    if (trouble !== undefined && coordination.alone) throw trouble;
    await delay(WAIT_MS, undefined, { signal }).catch((cause: unknown) => {
      throw new WeightsError('stopped', 'the pull was cancelled', { cause });
    });
  }
  if (older !== undefined) return older;
  throw (
    trouble ?? new WeightsError('unavailable', 'no node has the list of files, and no node can read it from the source')
  );
}

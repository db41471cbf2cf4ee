/** How long the event loop stalls while an isolate reads the changes of the registry. */
import { clonePlain } from '../../gateway/hosts/node/clone-plain.ts';
import { type SnapshotDelta, SnapshotStore } from '../../gateway/registry/snapshot-store.ts';
import { NodeIndex } from '../../shared/routing/node-index.ts';
import { median } from '../stats.ts';
import { benchNode } from './choosing.ts';

/** Each node reports its load once a second, and an isolate reads twice a second. */
const READS_PER_SECOND = 2;
const ROUNDS = 15;

/**
 * Milliseconds of the longest part of a read if all `nodes` are busy: the median of several reads, because other work on
 * the machine lengthens some.
 */
export function longestReadMs(nodes: number): number {
  const store = new SnapshotStore('bench');
  const index = new NodeIndex();
  const entries = Array.from({ length: nodes }, (_, n) => benchNode(n, `org/model-${n % 100}`));
  for (const entry of entries) store.put(entry);
  const apply = (delta: SnapshotDelta) => {
    for (const entry of delta.entries) index.put(entry);
    index.live.apply(delta.live ?? {});
  };
  let tag: string | null = null;
  const longest: number[] = [];
  for (let round = 0; round < 2 * ROUNDS; round++) {
    for (let n = round % READS_PER_SECOND; n < nodes; n += READS_PER_SECOND) {
      const { session } = entries[n] ?? benchNode(n, '');
      store.setLive(session, { load: { running: n % 9, waiting: 0, kvUse: 0.5, at: 1_000 * round } });
    }
    let most = 0;
    for (let more = true; more; ) {
      const before = performance.now();
      const delta = store.since(tag);
      if (delta === null) break;
      apply(clonePlain(delta) as SnapshotDelta);
      if (round > 0) most = Math.max(most, performance.now() - before);
      tag = delta.tag;
      more = delta.more === true;
    }
    longest.push(most);
  }
  return median(longest.slice(ROUNDS));
}

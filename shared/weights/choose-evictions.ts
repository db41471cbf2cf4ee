/** Chooses the models to delete when the disk quota is full: the least recently used ones that nothing uses now. */

export interface StoredModel {
  id: string;
  bytes: number;
  /** Milliseconds since 1970. */
  usedAt: number;
  /** An engine runs from it, or it is being pulled. */
  pinned: boolean;
}

/**
 * Ids to delete so that `needed` more bytes fit; undefined if they do not fit even then, and nothing should be deleted.
 */
export function chooseEvictions(
  kept: readonly StoredModel[],
  usedBytes: number,
  limitBytes: number,
  needed: number,
): string[] | undefined {
  let used = usedBytes;
  const gone: string[] = [];
  const oldest = kept.filter(({ pinned }) => !pinned).sort((a, b) => a.usedAt - b.usedAt || (a.id < b.id ? -1 : 1));
  for (const { id, bytes } of oldest) {
    if (used + needed <= limitBytes) break;
    gone.push(id);
    used -= bytes;
  }
  return used + needed <= limitBytes ? gone : undefined;
}

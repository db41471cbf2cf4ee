/** Chooses the models to delete when the disk quota is full: the least recently used ones that are not in use. */

export interface StoredModel {
  id: string;
  bytes: number;
  /** When the model was last used, in milliseconds since 1970. */
  usedAt: number;
  /** True if an engine runs from the model, or the model is being pulled. */
  pinned: boolean;
}

/**
 * Ids of the models to delete so that `needed` more bytes fit. Undefined if they would not fit even then; in this case
 * the caller deletes nothing.
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

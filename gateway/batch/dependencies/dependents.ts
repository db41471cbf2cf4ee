/** The batches that need results of a batch. It keeps its results until they have ended. */
import { DEPENDENTS_MAX } from '../../../shared/batch/line-references.ts';
import type { ObjectStorage } from '../../platform/object-context.ts';

/** A dependent batch that lost its object cannot say that it ended. Its time is over then. */
const GRACE_MS = 86_400_000;
const KEY = 'dependents';

export class Dependents {
  readonly #storage: ObjectStorage;

  constructor(storage: ObjectStorage) {
    this.#storage = storage;
  }

  /** Idempotent. @param untilMs end of the batch's window @returns false if there are too many */
  add(id: string, untilMs: number): boolean {
    const all = this.#all;
    if (!(id in all) && Object.keys(all).length >= DEPENDENTS_MAX) return false;
    this.#storage.kv.put(KEY, { ...all, [id]: untilMs + GRACE_MS });
    return true;
  }

  remove(id: string): void {
    const { [id]: _, ...others } = this.#all;
    this.#storage.kv.put(KEY, others);
  }

  /** When the last of them ends at the latest; undefined: there are none. */
  lastMs(nowMs: number): number | undefined {
    const open = Object.values(this.#all).filter((untilMs) => untilMs > nowMs);
    return open.length === 0 ? undefined : Math.max(...open);
  }

  forget(): void {
    this.#storage.kv.delete(KEY);
  }

  get #all(): Record<string, number> {
    return this.#storage.kv.get<Record<string, number>>(KEY) ?? {};
  }
}

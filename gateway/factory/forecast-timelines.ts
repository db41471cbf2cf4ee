import type { ObjectContext, ObjectStorage } from '../platform/object-context.ts';
import type { StorageHealth } from '../platform/storage/storage-health.ts';

/** Maximum models with a timeline. Above this number, the timeline that was not updated for longest is dropped. */
const MODELS_MAX = 32;
/** Maximum slots per model: four hours of minutes. */
export const TIMELINE_SLOTS = 240;
const TIMELINE = 'timeline/';

/** One slot of a model whose deployment follows a forecast, as `otela-plan watch --forecast` reports it. */
interface TimelineSlot {
  /** Start of the counted slot; milliseconds since the epoch. */
  at: number;
  /** Requests by kind; null: not counted. */
  requests: (number | null)[];
  /** The forecast for the next slot, by kind of request. */
  expected: { at: number; mean: number[]; low: number[]; high: number[] };
  /** Replicas by layout, for example `TP 2`. */
  replicas: Record<string, number>;
  decision: 'keep' | 'wait' | 'switch';
  why: string;
  changes: string[];
  /** Latency percentiles in milliseconds; null: no response in the slot. */
  p50Ms: number | null;
  p99Ms: number | null;
}

export interface ModelTimeline {
  model: string;
  slotMs: number;
  kinds: string[];
  /** Slots, oldest first. */
  slots: TimelineSlot[];
}

/** Timelines of models, for the dashboard. Stored; while the disk is full they are only in memory. */
export class DemandTimelines {
  readonly #storage: ObjectStorage;
  readonly #health: StorageHealth;
  readonly #known = new Map<string, ModelTimeline>();

  constructor({ storage, health }: Pick<ObjectContext, 'storage' | 'health'>) {
    this.#storage = storage;
    this.#health = health;
    for (const [, stored] of storage.kv.list<ModelTimeline>({ prefix: TIMELINE }))
      this.#known.set(stored.model, stored);
  }

  /**
   * Adds slots. A repeated slot replaces the old one. If the kinds or the length of slots differ, a new timeline
   * begins.
   */
  put({ model, slotMs, kinds, slots }: ModelTimeline): void {
    const known = this.#known.get(model);
    const goesOn = known !== undefined && known.slotMs === slotMs && known.kinds.join('\n') === kinds.join('\n');
    const kept = (goesOn ? known.slots : []).filter(({ at }) => !slots.some((one) => one.at === at));
    const all = [...kept, ...slots].sort((a, b) => a.at - b.at).slice(-TIMELINE_SLOTS);
    const timeline = { model, slotMs, kinds, slots: all };
    this.#known.delete(model);
    this.#known.set(model, timeline);
    const oldest = this.#known.size > MODELS_MAX ? this.#known.keys().next().value : undefined;
    if (oldest !== undefined) this.#known.delete(oldest);
    if (this.#health.failure !== undefined) return;
    this.#storage.kv.put(TIMELINE + model, timeline);
    if (oldest !== undefined) this.#storage.kv.delete(TIMELINE + oldest);
  }

  all(): ModelTimeline[] {
    return [...this.#known.values()].sort((a, b) => (a.model < b.model ? -1 : 1));
  }
}

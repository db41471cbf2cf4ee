import { type MetricState, MetricStore } from '../../shared/metrics/metric-store.ts';
import type { Env } from '../env.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import type { ObjectContext } from '../platform/object-context.ts';
import { writeIfPossible } from '../platform/storage/storage-health.ts';
import { METRICS_REPORTS, USAGE_OUTBOX_WAITING } from './metric-families.ts';
import type { MetricsReport } from './metrics-reporter.ts';
import type { RequestTimeline } from './request-timeline.ts';
import { type RecordOwner, TimelineStore } from './timeline-store.ts';

/** Maximum sources that report. Beyond this, the source that has been silent for longest is dropped. */
const SOURCES_MAX = 4_000;
/** How long a source's last gauges are valid. A source that died cannot withdraw its gauges, so they must expire. */
const GAUGES_VALID_MS = 30 * 60_000;
/** Maximum nodes whose number of waiting records is stored. */
const OUTBOXES_MAX = 10_000;
/** Counts are written this long after a change, and whenever they are read. */
const SAVE_MS = 10_000;
/** Maximum timelines that wait in memory while the disk is full, a kilobyte each. */
const WAITING_MAX = 1_000;
const PREFIX = 'counts/';

interface Source {
  sequence: number;
  gauges: MetricState;
  at: number;
}

/**
 * Sums the counts of isolates and other objects. If the runtime evicts the object, the counts since the last save are
 * lost. `read` saves first, and the output gate holds its result until the counts are on disk, so no reader ever sees a
 * counter decrease.
 */
export class ObserveObject extends GatewayObject {
  readonly #metrics = new MetricStore();
  readonly #timelines: TimelineStore;
  /** The newest timelines, which wait because the disk is full. */
  #waiting: readonly RequestTimeline[] = [];
  /** Sources in the order of their last reports. */
  readonly #sources = new Map<string, Source>();
  readonly #outboxes = new Map<string, number>();
  readonly #unsaved = new Set<string>();
  #saving: (() => void) | undefined;

  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    this.#timelines = new TimelineStore(ctx.storage);
    for (const [key, samples] of ctx.storage.kv.list<MetricState[string]>({ prefix: PREFIX }))
      this.#metrics.merge({ [key.slice(PREFIX.length)]: samples });
  }

  /** Adds a report. Each report counts once, however often it arrives. */
  add({ source, sequence, counts, gauges, stories: timelines = [] }: MetricsReport): void {
    if (sequence <= (this.#sources.get(source)?.sequence ?? 0)) return;
    this.#sources.delete(source);
    this.#sources.set(source, { sequence, gauges, at: Date.now() });
    const silent = this.#sources.keys().next().value;
    if (this.#sources.size > SOURCES_MAX && silent !== undefined) this.#sources.delete(silent);
    this.#metrics.merge(counts);
    // While the disk is full, counts are kept, and only timelines above WAITING_MAX are lost.
    const waiting = [...this.#waiting, ...timelines].slice(-WAITING_MAX);
    this.#waiting = writeIfPossible(() => this.#timelines.add(waiting, Date.now())) ? [] : waiting;
    this.#metrics.count(METRICS_REPORTS, []);
    for (const name of [...Object.keys(counts), METRICS_REPORTS.name]) this.#unsaved.add(name);
    this.#saving ??= this.ctx.clock.after(SAVE_MS, () => this.#save());
  }

  /** Stores how many of a node's records wait to be forwarded; 0: none. */
  outbox(session: string, waiting: number): void {
    this.#outboxes.delete(session);
    if (waiting > 0 && this.#outboxes.size < OUTBOXES_MAX) this.#outboxes.set(session, waiting);
  }

  /** Finds requests by the client's id or the gateway's, newest first. `owner`: only requests of this owner. */
  stories(id: string, owner?: RecordOwner): RequestTimeline[] {
    return this.#timelines.find(id, Date.now(), owner);
  }

  /** Returns all counts, and the valid gauges. */
  read(): MetricState {
    this.#save();
    const now = new MetricStore();
    const since = Date.now() - GAUGES_VALID_MS;
    for (const { gauges, at } of this.#sources.values()) if (at >= since) now.merge(gauges);
    now.set(
      USAGE_OUTBOX_WAITING,
      [],
      [...this.#outboxes.values()].reduce((sum, waiting) => sum + waiting, 0),
    );
    return { ...this.#metrics.state(), ...now.state() };
  }

  #save(): void {
    this.#saving?.();
    this.#saving = undefined;
    if (this.#unsaved.size === 0) return;
    const state = this.#metrics.state();
    for (const name of this.#unsaved) this.ctx.storage.kv.put(PREFIX + name, state[name] ?? []);
    this.#unsaved.clear();
  }
}

import { Book, type BookState } from '../../shared/metrics/book.ts';
import type { Env } from '../env.ts';
import { GatewayObject } from '../gateway-object.ts';
import type { ObjectContext } from '../object-context.ts';
import { writeIfPossible } from '../storage/health.ts';
import { OUTBOX, REPORTS } from './families.ts';
import type { Report } from './report.ts';
import { Stories, type Whose } from './stories.ts';
import type { Story } from './story.ts';

/** Places that report; the one that was silent longest makes room. */
const SOURCES_MAX = 4_000;
/** A place that died says nothing any more: what it last said is now so is believed for so long. */
const BELIEVED_MS = 30 * 60_000;
/** Nodes whose records wait. */
const OUTBOXES_MAX = 10_000;
/** Counts are written so long after they changed, and whenever they are read. */
const SAVE_MS = 10_000;
/** A kilobyte each. */
const UNTOLD_MAX = 1_000;
const PREFIX = 'counts/';

interface Source {
  sequence: number;
  gauges: BookState;
  at: number;
}

/**
 * Adds up what isolates and other objects count. Survives eviction: the counts, as they were read last or ten seconds ago. The output
 * gate sends a count out only once it is on disk, so no reader ever sees a counter run backwards.
 */
export class ObserveObject extends GatewayObject {
  readonly #book = new Book();
  readonly #stories: Stories;
  /** Stories that wait for a disk that is full: the newest. */
  #untold: readonly Story[] = [];
  /** In the order of their last word. */
  readonly #sources = new Map<string, Source>();
  readonly #outboxes = new Map<string, number>();
  readonly #unsaved = new Set<string>();
  #saving: (() => void) | undefined;

  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    this.#stories = new Stories(ctx.storage);
    for (const [key, samples] of ctx.storage.kv.list<BookState[string]>({ prefix: PREFIX }))
      this.#book.merge({ [key.slice(PREFIX.length)]: samples });
  }

  /** Each report counts once, however often it comes. */
  add({ source, sequence, counts, gauges, stories = [] }: Report): void {
    if (sequence <= (this.#sources.get(source)?.sequence ?? 0)) return;
    this.#sources.delete(source);
    this.#sources.set(source, { sequence, gauges, at: Date.now() });
    const silent = this.#sources.keys().next().value;
    if (this.#sources.size > SOURCES_MAX && silent !== undefined) this.#sources.delete(silent);
    this.#book.merge(counts);
    // A disk that is full costs no counts, and no stories but those above the bound.
    const untold = [...this.#untold, ...stories].slice(-UNTOLD_MAX);
    this.#untold = writeIfPossible(() => this.#stories.add(untold, Date.now())) ? [] : untold;
    this.#book.count(REPORTS, []);
    for (const name of [...Object.keys(counts), REPORTS.name]) this.#unsaved.add(name);
    this.#saving ??= this.ctx.clock.after(SAVE_MS, () => this.#save());
  }

  /** So many records of a node wait, since they could not be handed on; 0: none any more. */
  outbox(session: string, waiting: number): void {
    this.#outboxes.delete(session);
    if (waiting > 0 && this.#outboxes.size < OUTBOXES_MAX) this.#outboxes.set(session, waiting);
  }

  /** Requests by the client's id or ours, the newest first; of `whose` alone. */
  stories(id: string, whose?: Whose): Story[] {
    return this.#stories.find(id, Date.now(), whose);
  }

  /** All that was ever counted, and what is so now. */
  read(): BookState {
    this.#save();
    const now = new Book();
    const since = Date.now() - BELIEVED_MS;
    for (const { gauges, at } of this.#sources.values()) if (at >= since) now.merge(gauges);
    now.set(
      OUTBOX,
      [],
      [...this.#outboxes.values()].reduce((sum, waiting) => sum + waiting, 0),
    );
    return { ...this.#book.state(), ...now.state() };
  }

  #save(): void {
    this.#saving?.();
    this.#saving = undefined;
    if (this.#unsaved.size === 0) return;
    const state = this.#book.state();
    for (const name of this.#unsaved) this.ctx.storage.kv.put(PREFIX + name, state[name] ?? []);
    this.#unsaved.clear();
  }
}

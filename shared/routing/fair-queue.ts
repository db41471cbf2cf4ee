import { FairTags } from './fair-tags.ts';

/** What a queue must know about a waiting request. */
export interface QueueItem {
  name: string;
  /** Id that shares turns by weight: of the project, or of a key without a project. */
  project: string;
  /** Id of the API key. The keys of one project get equal numbers of turns. */
  key: string;
  /** Requests with the same scope wait for the same nodes; see `eligible`. */
  scope: string;
  priority: Priority;
  /** Weight of the project, above 0. */
  weight: number;
}

export type Priority = 'interactive' | 'batch';

/**
 * Interactive requests go first, but if batch lines wait, one of this many consecutive turns goes to a batch line, so
 * that batches never starve.
 */
export const BATCH_TURN_EVERY = 8;

/** Result of entering the queue. `evicted`: the request that was removed because the queue was full. */
export type EnqueueResult<P extends QueueItem> = { kind: 'in'; evicted: P | undefined } | { kind: 'full' };

/**
 * Decides which waiting request is next. Interactive requests go before batch lines. Within a priority, projects share
 * turns by weight, the keys of a project share its turns equally, and the requests of a key go in order of arrival.
 *
 * Bounded: if the queue is full, an interactive request replaces a batch line. If no batch line waits, the caller with
 * the largest share of the same priority loses its newest request. If the new request's caller would then have as large
 * a share, the new request is refused instead.
 */
export class FairQueue<P extends QueueItem> {
  readonly #max: number;
  readonly #classes: Record<Priority, PriorityClass<P>> = {
    interactive: new PriorityClass(),
    batch: new PriorityClass(),
  };
  /** Waiting requests by name. At most `max`, plus the requests that `requeue` returned to the queue. */
  readonly #items = new Map<string, P>();
  /** Number of consecutive interactive turns since the last batch turn. */
  #interactiveRun = 0;

  /** @param max maximum number of waiting requests */
  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#items.size;
  }

  count(priority: Priority): number {
    return this.#classes[priority].size;
  }

  /** Number of waiting requests with the same key. */
  countOf({ project, key }: Pick<QueueItem, 'project' | 'key'>): number {
    const { interactive, batch } = this.#classes;
    return interactive.sizeOf(project, key) + batch.sizeOf(project, key);
  }

  get(name: string): P | undefined {
    return this.#items.get(name);
  }

  items(): IterableIterator<P> {
    return this.#items.values();
  }

  /**
   * Estimates how many requests for the same nodes go before this request if no more arrive. Assumes that callers get
   * turns by their shares, and ignores past turns. Undefined if the request does not wait.
   */
  ahead(name: string): number | undefined {
    const item = this.#items.get(name);
    if (item === undefined) return undefined;
    const { interactive, batch } = this.#classes;
    if (item.priority === 'interactive') return interactive.ahead(item);
    const own = batch.ahead(item);
    return own + Math.min(interactive.waitingIn(item.scope), (own + 1) * (BATCH_TURN_EVERY - 1));
  }

  enqueue(item: P): EnqueueResult<P> {
    let evicted: P | undefined;
    if (this.#items.size >= this.#max) {
      evicted = this.#victimFor(item);
      if (evicted === undefined) return { kind: 'full' };
      this.remove(evicted.name);
    }
    this.#classes[item.priority].add(item, false);
    this.#items.set(item.name, item);
    return { kind: 'in', evicted };
  }

  /**
   * Puts a request back because its turn found no free node. It becomes the first of its key again, even if the queue
   * is full.
   */
  requeue(item: P): void {
    const own = this.#classes[item.priority];
    own.add(item, true);
    own.refund(item);
    this.#items.set(item.name, item);
  }

  remove(name: string): P | undefined {
    const item = this.#items.get(name);
    if (item === undefined) return undefined;
    this.#items.delete(name);
    this.#classes[item.priority].remove(item);
    return item;
  }

  /** Removes and returns the next request with an eligible scope. */
  dequeue(eligible: (scope: string) => boolean): P | undefined {
    const { interactive, batch } = this.#classes;
    const batchFirst = this.#interactiveRun >= BATCH_TURN_EVERY - 1;
    const item = batchFirst
      ? (batch.next(eligible) ?? interactive.next(eligible))
      : (interactive.next(eligible) ?? batch.next(eligible));
    if (item === undefined) return undefined;
    this.#interactiveRun = item.priority === 'interactive' && batch.size > 0 ? this.#interactiveRun + 1 : 0;
    this.#items.delete(item.name);
    return item;
  }

  #victimFor(item: P): P | undefined {
    const { interactive, batch } = this.#classes;
    if (item.priority === 'interactive' && batch.size > 0) return batch.newestOfLargest();
    return (item.priority === 'interactive' ? interactive : batch).newestOfLargest(item);
  }
}

/** The requests of one key by scope. Each list is in order of arrival. */
type Lanes<P> = Map<string, P[]>;

interface Project<P> {
  weight: number;
  size: number;
  tags: FairTags;
  keys: Map<string, { size: number; lanes: Lanes<P> }>;
}

/** The part of the queue for one priority. */
class PriorityClass<P extends QueueItem> {
  readonly #tags = new FairTags();
  /** Projects with a waiting request. */
  readonly #projects = new Map<string, Project<P>>();
  size = 0;

  sizeOf(project: string, key: string): number {
    return this.#projects.get(project)?.keys.get(key)?.size ?? 0;
  }

  add(item: P, first: boolean): void {
    const { weight } = item;
    const project = this.#projects.get(item.project) ?? { weight, size: 0, tags: new FairTags(), keys: new Map() };
    project.weight = weight; // The latest weight counts.
    this.#projects.set(item.project, project);
    const key = project.keys.get(item.key) ?? { size: 0, lanes: new Map() };
    project.keys.set(item.key, key);
    const lane = key.lanes.get(item.scope) ?? [];
    key.lanes.set(item.scope, lane);
    if (first) lane.unshift(item);
    else lane.push(item);
    for (const one of [this, project, key]) one.size++;
  }

  remove(item: P): void {
    const project = this.#projects.get(item.project);
    const key = project?.keys.get(item.key);
    const lane = key?.lanes.get(item.scope);
    const at = lane?.indexOf(item) ?? -1;
    if (project === undefined || key === undefined || lane === undefined || at < 0) return;
    lane.splice(at, 1);
    for (const one of [this, project, key]) one.size--;
    if (lane.length === 0) key.lanes.delete(item.scope);
    if (key.size === 0) project.keys.delete(item.key);
    if (project.size === 0) this.#projects.delete(item.project);
  }

  /**
   * Counts the requests of the same scope that go before this request. It assumes that each other key of the project
   * gets as many turns as this request's key, and that projects get turns by weight.
   */
  ahead(item: P): number {
    const rank = this.#projects.get(item.project)?.keys.get(item.key)?.lanes.get(item.scope)?.indexOf(item) ?? 0;
    let ofProject = rank;
    let others = 0;
    for (const [key, { lanes }] of this.#projects.get(item.project)?.keys ?? [])
      if (key !== item.key) ofProject += Math.min(lanes.get(item.scope)?.length ?? 0, rank + 1);
    for (const [id, project] of this.#projects) {
      if (id === item.project) continue;
      const turns = Math.ceil(((ofProject + 1) * project.weight) / item.weight);
      others += Math.min(waitingIn(project, item.scope), turns);
    }
    return ofProject + others;
  }

  waitingIn(scope: string): number {
    let sum = 0;
    for (const project of this.#projects.values()) sum += waitingIn(project, scope);
    return sum;
  }

  next(eligible: (scope: string) => boolean): P | undefined {
    let best: { item: P; project: Project<P>; tag: number; keyTag: number } | undefined;
    for (const [id, project] of this.#projects) {
      const tag = this.#tags.of(id);
      if (best !== undefined && tag > best.tag) continue;
      const head = headOf(project, eligible);
      // If two projects have equal tags, the project that came to the queue first is served; maps keep insertion order.
      if (head === undefined || (best !== undefined && tag === best.tag)) continue;
      best = { ...head, project, tag };
    }
    if (best === undefined) return undefined;
    const { item, project } = best;
    this.#tags.serve(item.project, 1 / project.weight);
    project.tags.serve(item.key, 1);
    this.remove(item);
    return item;
  }

  refund(item: P): void {
    this.#tags.refund(item.project, 1 / item.weight);
    this.#projects.get(item.project)?.tags.refund(item.key, 1);
  }

  /**
   * The newest request of the caller with the largest weighted share.
   * @param than a request that wants its place; returns undefined if the share of this request's caller would be as
   * large
   */
  newestOfLargest(than?: P): P | undefined {
    const project = largest(this.#projects.values(), ({ size, weight }) => size / weight);
    if (project === undefined) return undefined;
    const key = largest(project.keys.values(), ({ size }) => size);
    if (key === undefined) return undefined;
    if (than !== undefined && !isLarger(project, key, this.#projects.get(than.project), than)) return undefined;
    const lane = largest(key.lanes.values(), ({ length }) => length);
    return lane?.at(-1);
  }
}

function isLarger<P extends QueueItem>(
  project: Project<P>,
  key: { size: number },
  own: Project<P> | undefined,
  than: P,
): boolean {
  if (own === project) return key.size > (own.keys.get(than.key)?.size ?? 0) + 1;
  return project.size / project.weight > ((own?.size ?? 0) + 1) / than.weight;
}

function waitingIn<P>(project: Project<P>, scope: string): number {
  let sum = 0;
  for (const { lanes } of project.keys.values()) sum += lanes.get(scope)?.length ?? 0;
  return sum;
}

/** The next request within a project. */
function headOf<P>(project: Project<P>, eligible: (scope: string) => boolean): { item: P; keyTag: number } | undefined {
  let best: { item: P; keyTag: number } | undefined;
  for (const [id, { lanes }] of project.keys) {
    const keyTag = project.tags.of(id);
    if (best !== undefined && keyTag >= best.keyTag) continue;
    for (const [scope, [item]] of lanes) {
      if (item === undefined || !eligible(scope)) continue;
      best = { item, keyTag };
      break;
    }
  }
  return best;
}

function largest<T>(items: Iterable<T>, size: (item: T) => number): T | undefined {
  let found: { item: T; size: number } | undefined;
  for (const item of items) {
    const one = size(item);
    if (found === undefined || one > found.size) found = { item, size: one };
  }
  return found?.item;
}

import { FairTags } from './fair-tags.ts';

/** What a queue must know about a waiting request. */
export interface QueueItem {
  name: string;
  /** Unit of weighted sharing: a project, or a key without a project. */
  project: string;
  /** Keys of one project share equally. */
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

/**
 * Result of entering the queue. `pushedOut`: the queue was full, and a caller with more than its fair share lost a
 * place.
 */
export type EnqueueResult<P extends QueueItem> = { kind: 'in'; pushedOut: P | undefined } | { kind: 'full' };

/**
 * Decides which waiting request is next. Interactive requests go before batch lines. Within a priority, projects share
 * turns by weight, the keys of a project share its turns equally, and the requests of a key go in order of arrival.
 *
 * Bounded: if the queue is full, a request from a caller with less than its fair share replaces the newest request of
 * the caller with the largest share.
 */
export class FairQueue<P extends QueueItem> {
  readonly #max: number;
  readonly #classes: Record<Priority, PriorityClass<P>> = {
    interactive: new PriorityClass(),
    batch: new PriorityClass(),
  };
  /** Waiting requests by name. At most `max`, plus the requests that `back` returned to the queue. */
  readonly #places = new Map<string, P>();
  /** Number of consecutive interactive turns since the last batch turn. */
  #inRow = 0;

  /** @param max maximum number of waiting requests */
  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#places.size;
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
    return this.#places.get(name);
  }

  places(): IterableIterator<P> {
    return this.#places.values();
  }

  /**
   * Estimates how many requests for the same nodes go before this one if no more arrive. Uses the callers' shares, and
   * ignores past turns. Undefined if the request does not wait.
   */
  ahead(name: string): number | undefined {
    const place = this.#places.get(name);
    if (place === undefined) return undefined;
    const { interactive, batch } = this.#classes;
    if (place.priority === 'interactive') return interactive.ahead(place);
    const own = batch.ahead(place);
    return own + Math.min(interactive.waitingIn(place.scope), (own + 1) * (BATCH_TURN_EVERY - 1));
  }

  enter(place: P): EnqueueResult<P> {
    let pushedOut: P | undefined;
    if (this.#places.size >= this.#max) {
      pushedOut = this.#victimFor(place);
      if (pushedOut === undefined) return { kind: 'full' };
      this.leave(pushedOut.name);
    }
    this.#classes[place.priority].add(place, false);
    this.#places.set(place.name, place);
    return { kind: 'in', pushedOut };
  }

  /**
   * Puts a request back when its turn found no free node: it becomes the first of its key again, even if the queue is
   * full.
   */
  back(place: P): void {
    const own = this.#classes[place.priority];
    own.add(place, true);
    own.refund(place);
    this.#places.set(place.name, place);
  }

  leave(name: string): P | undefined {
    const place = this.#places.get(name);
    if (place === undefined) return undefined;
    this.#places.delete(name);
    this.#classes[place.priority].remove(place);
    return place;
  }

  /** Removes and returns the next request with an eligible scope. */
  next(eligible: (scope: string) => boolean): P | undefined {
    const { interactive, batch } = this.#classes;
    const batchFirst = this.#inRow >= BATCH_TURN_EVERY - 1;
    const place = batchFirst
      ? (batch.next(eligible) ?? interactive.next(eligible))
      : (interactive.next(eligible) ?? batch.next(eligible));
    if (place === undefined) return undefined;
    this.#inRow = place.priority === 'interactive' && batch.size > 0 ? this.#inRow + 1 : 0;
    this.#places.delete(place.name);
    return place;
  }

  #victimFor(place: P): P | undefined {
    const { interactive, batch } = this.#classes;
    if (place.priority === 'interactive' && batch.size > 0) return batch.newestOfLargest();
    return (place.priority === 'interactive' ? interactive : batch).newestOfLargest(place);
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

  add(place: P, first: boolean): void {
    const { weight } = place;
    const project = this.#projects.get(place.project) ?? { weight, size: 0, tags: new FairTags(), keys: new Map() };
    project.weight = weight; // The latest weight counts.
    this.#projects.set(place.project, project);
    const key = project.keys.get(place.key) ?? { size: 0, lanes: new Map() };
    project.keys.set(place.key, key);
    const lane = key.lanes.get(place.scope) ?? [];
    key.lanes.set(place.scope, lane);
    if (first) lane.unshift(place);
    else lane.push(place);
    for (const one of [this, project, key]) one.size++;
  }

  remove(place: P): void {
    const project = this.#projects.get(place.project);
    const key = project?.keys.get(place.key);
    const lane = key?.lanes.get(place.scope);
    const at = lane?.indexOf(place) ?? -1;
    if (project === undefined || key === undefined || lane === undefined || at < 0) return;
    lane.splice(at, 1);
    for (const one of [this, project, key]) one.size--;
    if (lane.length === 0) key.lanes.delete(place.scope);
    if (key.size === 0) project.keys.delete(place.key);
    if (project.size === 0) this.#projects.delete(place.project);
  }

  /**
   * Counts the requests of the same scope that go before this request. It assumes that each other key of the project
   * gets as many turns as this request's key, and that projects get turns by weight.
   */
  ahead(place: P): number {
    const rank = this.#projects.get(place.project)?.keys.get(place.key)?.lanes.get(place.scope)?.indexOf(place) ?? 0;
    let ofProject = rank;
    let others = 0;
    for (const [key, { lanes }] of this.#projects.get(place.project)?.keys ?? [])
      if (key !== place.key) ofProject += Math.min(lanes.get(place.scope)?.length ?? 0, rank + 1);
    for (const [id, project] of this.#projects) {
      if (id === place.project) continue;
      const turns = Math.ceil(((ofProject + 1) * project.weight) / place.weight);
      others += Math.min(waitingIn(project, place.scope), turns);
    }
    return ofProject + others;
  }

  waitingIn(scope: string): number {
    let sum = 0;
    for (const project of this.#projects.values()) sum += waitingIn(project, scope);
    return sum;
  }

  next(eligible: (scope: string) => boolean): P | undefined {
    let best: { place: P; project: Project<P>; tag: number; keyTag: number } | undefined;
    for (const [id, project] of this.#projects) {
      const tag = this.#tags.of(id);
      if (best !== undefined && tag > best.tag) continue;
      const head = headOf(project, eligible);
      // If tags are equal, the earlier entry wins: maps keep insertion order.
      if (head === undefined || (best !== undefined && tag === best.tag)) continue;
      best = { ...head, project, tag };
    }
    if (best === undefined) return undefined;
    const { place, project } = best;
    this.#tags.serve(place.project, 1 / project.weight);
    project.tags.serve(place.key, 1);
    this.remove(place);
    return place;
  }

  refund(place: P): void {
    this.#tags.refund(place.project, 1 / place.weight);
    this.#projects.get(place.project)?.tags.refund(place.key, 1);
  }

  /**
   * The newest request of the caller with the largest weighted share.
   * @param than a request that wants the place. If its caller would have as large a share, returns undefined.
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
function headOf<P>(
  project: Project<P>,
  eligible: (scope: string) => boolean,
): { place: P; keyTag: number } | undefined {
  let best: { place: P; keyTag: number } | undefined;
  for (const [id, { lanes }] of project.keys) {
    const keyTag = project.tags.of(id);
    if (best !== undefined && keyTag >= best.keyTag) continue;
    for (const [scope, [place]] of lanes) {
      if (place === undefined || !eligible(scope)) continue;
      best = { place, keyTag };
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

import type { RegistryEntry } from '../lattice/node-record.ts';
import { LiveNodes } from './live-nodes.ts';
import { SessionBag } from './session-bag.ts';

/**
 * Maximum number of remembered changes per model. If a list was derived from an earlier version, it is derived again.
 */
const CHANGES_MAX = 512;

/** The sessions of one model, sorted for routing. */
export interface ModelNodes {
  readonly id: string;
  /** Sessions that can take a request now: SERVING, not suspected, reachable from here, model ready. */
  readonly ready: readonly RegistryEntry[];
  /** Sessions that could take a request, except that the path to them was lost. */
  readonly suspected: readonly RegistryEntry[];
  /** Every session that serves or served the model, LEFT sessions included. */
  readonly all: readonly RegistryEntry[];
  /**
   * Changes whenever one of the lists changes. Results derived from the lists are valid while the version is the same.
   */
  readonly version: number;
  /** Live state, valid for seconds only. */
  readonly live: LiveNodes;
  /** The sessions that changed after this version; undefined if that was too many changes ago. */
  changedSince(version: number): readonly string[] | undefined;
  /** The session's entry in `ready` or in `suspected`. */
  find(session: string): { ready: RegistryEntry | undefined; suspected: RegistryEntry | undefined };
}

/**
 * True if a session serves, whether or not it can take a request now. While one can, this takes constant time, and not
 * as long as the list of sessions that left.
 */
export function isServing(nodes: ModelNodes | undefined): boolean {
  if (nodes === undefined) return false;
  return nodes.ready.length + nodes.suspected.length > 0 || nodes.all.some(({ state }) => state === 'SERVING');
}

class SortedSessions implements ModelNodes {
  readonly id: string;
  readonly live: LiveNodes;
  readonly #ready = new SessionBag<RegistryEntry>();
  readonly #suspected = new SessionBag<RegistryEntry>();
  readonly #all = new SessionBag<RegistryEntry>();
  /** The sessions that changed last, oldest first; at most `2 * CHANGES_MAX`. */
  #changes: string[] = [];
  /** Version before the oldest of `#changes`. */
  #forgotten = 0;

  constructor(id: string, live: LiveNodes) {
    this.id = id;
    this.live = live;
  }

  get ready(): readonly RegistryEntry[] {
    return this.#ready.list;
  }
  get suspected(): readonly RegistryEntry[] {
    return this.#suspected.list;
  }
  get all(): readonly RegistryEntry[] {
    return this.#all.list;
  }
  get version(): number {
    return this.#forgotten + this.#changes.length;
  }

  changedSince(version: number): readonly string[] | undefined {
    return version < this.#forgotten ? undefined : this.#changes.slice(version - this.#forgotten);
  }

  find(session: string): { ready: RegistryEntry | undefined; suspected: RegistryEntry | undefined } {
    return { ready: this.#ready.get(session), suspected: this.#suspected.get(session) };
  }

  put(entry: RegistryEntry): void {
    this.#changed(entry.session);
    this.#all.put(entry);
    const serves =
      entry.state === 'SERVING' && entry.models.some((model) => model.id === this.id && model.state === 'ready');
    const reachable = entry.connected && !entry.suspected;
    if (serves && reachable) this.#ready.put(entry);
    else this.#ready.delete(entry.session);
    if (serves && !reachable) this.#suspected.put(entry);
    else this.#suspected.delete(entry.session);
  }

  delete(session: string): void {
    this.#changed(session);
    for (const bag of [this.#ready, this.#suspected, this.#all]) bag.delete(session);
  }

  #changed(session: string): void {
    this.#changes.push(session);
    if (this.#changes.length <= 2 * CHANGES_MAX) return;
    this.#changes = this.#changes.slice(CHANGES_MAX);
    this.#forgotten += CHANGES_MAX;
  }
}

/**
 * An index of sessions by model. An update takes time proportional to the change, not to the number of nodes. The data
 * comes from a gateway's snapshot or an agent's replica.
 */
export class NodeIndex {
  readonly live = new LiveNodes();
  readonly #entries = new Map<string, RegistryEntry>();
  readonly #models = new Map<string, SortedSessions>();

  get size(): number {
    return this.#entries.size;
  }

  get(session: string): RegistryEntry | undefined {
    return this.#entries.get(session);
  }

  entries(): IterableIterator<RegistryEntry> {
    return this.#entries.values();
  }

  /** The nodes of a model. Undefined if no known session ever served it. */
  model(id: string): ModelNodes | undefined {
    return this.#models.get(id);
  }

  models(): IterableIterator<[string, ModelNodes]> {
    return this.#models.entries();
  }

  put(entry: RegistryEntry): void {
    const known = this.#entries.get(entry.session);
    if (known !== undefined) {
      for (const { id } of known.models) if (!entry.models.some((model) => model.id === id)) this.#withdraw(id, known);
    }
    this.#entries.set(entry.session, entry);
    for (const { id } of entry.models) this.#file(id, entry);
  }

  delete(session: string): void {
    const known = this.#entries.get(session);
    if (known === undefined) return;
    this.#entries.delete(session);
    this.live.forget(session);
    for (const { id } of known.models) this.#withdraw(id, known);
  }

  clear(): void {
    this.#entries.clear();
    this.#models.clear();
  }

  #file(id: string, entry: RegistryEntry): void {
    let nodes = this.#models.get(id);
    if (nodes === undefined) {
      nodes = new SortedSessions(id, this.live);
      this.#models.set(id, nodes);
    }
    nodes.put(entry);
  }

  #withdraw(id: string, { session }: RegistryEntry): void {
    const nodes = this.#models.get(id);
    if (nodes === undefined) return;
    nodes.delete(session);
    if (nodes.all.length === 0) this.#models.delete(id);
  }
}

import type { RegistryEntry } from '../lattice/node-record.ts';
import { LiveNodes } from './live-nodes.ts';

/**
 * A collection of items by key. It gives them as an array, supports random choice, and updates in constant time. The
 * order of the array has no meaning.
 */
class Bag {
  readonly list: RegistryEntry[] = [];
  readonly #at = new Map<string, number>();

  put(entry: RegistryEntry): void {
    const at = this.#at.get(entry.session);
    if (at !== undefined) {
      this.list[at] = entry;
      return;
    }
    this.#at.set(entry.session, this.list.length);
    this.list.push(entry);
  }

  delete(session: string): void {
    const at = this.#at.get(session);
    if (at === undefined) return;
    this.#at.delete(session);
    const last = this.list.pop();
    if (last === undefined || last.session === session) return;
    this.list[at] = last;
    this.#at.set(last.session, at);
  }
}

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
}

/**
 * True if a session serves, whether or not it can take a request now. While one can, this takes constant time, and not
 * as long as the list of sessions that left.
 */
export function isServing(nodes: ModelNodes | undefined): boolean {
  if (nodes === undefined) return false;
  return nodes.ready.length + nodes.suspected.length > 0 || nodes.all.some(({ state }) => state === 'SERVING');
}

interface Bags extends ModelNodes {
  version: number;
  readonly bags: { ready: Bag; suspected: Bag; all: Bag };
}

/**
 * An index of sessions by model. An update takes time proportional to the change, not to the number of nodes. The data
 * comes from a gateway's snapshot or an agent's replica.
 */
export class NodeIndex {
  readonly live = new LiveNodes();
  readonly #entries = new Map<string, RegistryEntry>();
  readonly #models = new Map<string, Bags>();

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
    const nodes = this.#models.get(id) ?? this.#add(id);
    const { bags } = nodes;
    nodes.version++;
    bags.all.put(entry);
    const serves =
      entry.state === 'SERVING' && entry.models.some((model) => model.id === id && model.state === 'ready');
    const reachable = entry.connected && !entry.suspected;
    if (serves && reachable) bags.ready.put(entry);
    else bags.ready.delete(entry.session);
    if (serves && !reachable) bags.suspected.put(entry);
    else bags.suspected.delete(entry.session);
  }

  #add(id: string): Bags {
    const bags = { ready: new Bag(), suspected: new Bag(), all: new Bag() };
    const { live } = this;
    const [ready, suspected, all] = [bags.ready.list, bags.suspected.list, bags.all.list];
    const nodes = { id, bags, version: 0, live, ready, suspected, all };
    this.#models.set(id, nodes);
    return nodes;
  }

  #withdraw(id: string, { session }: RegistryEntry): void {
    const nodes = this.#models.get(id);
    if (nodes === undefined) return;
    const { ready, suspected, all } = nodes.bags;
    nodes.version++;
    for (const bag of [ready, suspected, all]) bag.delete(session);
    if (all.list.length === 0) this.#models.delete(id);
  }
}

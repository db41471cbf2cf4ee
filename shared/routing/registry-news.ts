import type { RegistryEntry } from '../lattice/node.ts';
import type { NodeIndex } from './nodes.ts';
import { passes, publicEntry, type RegistryFilter, type RegistryViewName, registryView } from './registry-view.ts';

/** Proxies end what is silent. */
const PING_MS = 15_000;

export interface RegistryNow {
  /** Changes with everything below. */
  tag: string;
  nodes: NodeIndex;
}

/** Says what changed in a view since it was last asked. */
export class RegistryNews {
  readonly #view: () => RegistryNow;
  readonly #name: RegistryViewName;
  readonly #filter: RegistryFilter;
  #tag: string | undefined;
  #saidAt = 0;
  #list = '';
  readonly #shown = new Map<string, RegistryEntry>();

  constructor(view: () => RegistryNow, name: RegistryViewName, filter: RegistryFilter) {
    this.#view = view;
    this.#name = name;
    this.#filter = filter;
  }

  /** Events to send now; '' where there is nothing to say. `now` in milliseconds since the epoch. */
  since(now: number): string {
    const { tag } = this.#view();
    const said = this.#tag === tag ? '' : this.#changes(now);
    this.#tag = tag;
    const news = said === '' && now - this.#saidAt >= PING_MS ? ': ping\n\n' : said;
    if (news !== '') this.#saidAt = now;
    return news;
  }

  #changes(now: number): string {
    if (this.#tag !== undefined && this.#name === 'nodes') return this.#nodes(now);
    const { nodes, tag } = this.#view();
    const list = JSON.stringify(registryView(this.#name, nodes, this.#filter, now));
    if (list === this.#list) return '';
    if (this.#name === 'nodes') this.#nodes(now);
    else this.#list = list;
    return event('snapshot', list, tag);
  }

  #nodes(now: number): string {
    const { nodes, tag } = this.#view();
    let news = '';
    for (const entry of nodes.entries()) {
      if (this.#shown.get(entry.session) === entry || !passes(entry, this.#filter, now)) continue;
      this.#shown.set(entry.session, entry);
      news += event('node', JSON.stringify(publicEntry(entry)), tag);
    }
    for (const session of this.#shown.keys()) {
      const entry = nodes.get(session);
      if (entry !== undefined && passes(entry, this.#filter, now)) continue;
      this.#shown.delete(session);
      news += event('gone', JSON.stringify({ session }), tag);
    }
    return news;
  }
}

function event(name: string, data: string, id: string): string {
  return `event: ${name}\nid: ${id}\ndata: ${data}\n\n`;
}

import type { RegistryEntry } from '../lattice/node-record.ts';
import { LOADS_MS, modelLoadsText } from './model-loads.ts';
import {
  dependsOnTime,
  matchesFilter,
  publicEntry,
  type RegistryFilter,
  type RegistryViewName,
  registryView,
  type ViewedNodes,
} from './registry-view.ts';

/** Interval of pings to the reader, because proxies close silent connections. */
const PING_MS = 15_000;

/**
 * How often the view is recomputed if the filter contains `time_left`. Such a view changes even if the registry does
 * not.
 */
const TIMED_MS = 1_000;

interface RegistryNow {
  /** Tag of the registry's state. It changes whenever one of the fields below changes. */
  tag: string;
  nodes: ViewedNodes;
}

/** Reports the changes of a registry view since the previous call. */
export class RegistryChanges {
  readonly #view: () => RegistryNow;
  readonly #name: RegistryViewName;
  readonly #filter: RegistryFilter;
  #tag: string | undefined;
  #sentAt = 0;
  #checkedAt = 0;
  #list = '';
  readonly #withLoads: boolean;
  #loads = '[]';
  /** When loads were last read. They are read at most once per interval, even if they have not changed. */
  #loadsLookedAt = Number.NEGATIVE_INFINITY;
  readonly #shown = new Map<string, RegistryEntry>();

  /** `withLoads`: also send the load of each model's engines, as `load` events. */
  constructor(view: () => RegistryNow, name: RegistryViewName, filter: RegistryFilter, withLoads = false) {
    this.#withLoads = withLoads;
    this.#view = view;
    this.#name = name;
    this.#filter = filter;
  }

  /** Events to send now; '' if there are none. `now` in milliseconds since the epoch. */
  since(now: number): string {
    const { tag } = this.#view();
    const due = dependsOnTime(this.#filter) && now - this.#checkedAt >= TIMED_MS;
    const changes = this.#tag === tag && !due ? '' : this.#changes(now);
    this.#tag = tag;
    const said = changes + this.#loadsNow(now);
    const news = said === '' && now - this.#sentAt >= PING_MS ? ': ping\n\n' : said;
    if (news !== '') this.#sentAt = now;
    return news;
  }

  #loadsNow(now: number): string {
    if (!this.#withLoads || now - this.#loadsLookedAt < LOADS_MS) return '';
    this.#loadsLookedAt = now;
    const { nodes, tag } = this.#view();
    const loads = modelLoadsText(nodes, now);
    if (loads === this.#loads) return '';
    this.#loads = loads;
    return event('load', `{"object":"list","data":${loads}}`, tag);
  }

  #changes(now: number): string {
    this.#checkedAt = now;
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
      if (this.#shown.get(entry.session) === entry || !matchesFilter(entry, this.#filter, now)) continue;
      this.#shown.set(entry.session, entry);
      news += event('node', JSON.stringify(publicEntry(entry)), tag);
    }
    for (const session of this.#shown.keys()) {
      const entry = nodes.get(session);
      if (entry !== undefined && matchesFilter(entry, this.#filter, now)) continue;
      this.#shown.delete(session);
      news += event('gone', JSON.stringify({ session }), tag);
    }
    return news;
  }
}

function event(name: string, data: string, id: string): string {
  return `event: ${name}\nid: ${id}\ndata: ${data}\n\n`;
}

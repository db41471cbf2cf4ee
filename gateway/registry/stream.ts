import type { RegistryEntry } from '../../shared/lattice/node.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import {
  passes,
  publicEntry,
  type RegistryFilter,
  type RegistryViewName,
  registryView,
} from '../../shared/routing/registry-view.ts';
import type { Env } from '../env.ts';
import { type SnapshotCache, snapshots } from './snapshot.ts';

/** How often an open stream looks at the isolate's view: that costs nobody anything. */
const LOOK_MS = 1_000;

/** Where no request keeps the view fresh, a stream asks this seldom: the registry object sleeps in between. */
const ASK_MS = 20_000;

/** Proxies end what is silent. */
const PING_MS = 15_000;

/** Open streams of one isolate; each compares the whole view when it changed. */
const STREAMS_MAX = 64;
let open = 0;

const encoder = new TextEncoder();

/**
 * A registry view as server-sent events (WHATWG HTML §9.2): `snapshot` with the whole list first, then for nodes `node` for each
 * that changed and `gone` for each that no longer passes; for models and providers the list again. Served from the isolate's
 * view at the reader's pace: nothing queues up, and no object is kept awake. Ends when the key `hash` is revoked.
 * @throws ApiError 503 above 64 streams in this isolate.
 */
export function watchRegistry(
  env: Env,
  name: RegistryViewName,
  filter: RegistryFilter,
  hash: string | undefined,
): ReadableStream {
  if (open >= STREAMS_MAX) throw new ApiError('server_is_overloaded', 'Too many registry streams are open here.');
  open++;
  const teller = new Teller(snapshots, name, filter);
  let timer: ReturnType<typeof setTimeout> | null = null;
  let over = false;
  const end = () => {
    if (over) return;
    over = true;
    open--;
    clearTimeout(timer);
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        while (!over) {
          const now = Date.now();
          if (hash !== undefined && snapshots.view.revoked.has(hash)) {
            end();
            return controller.close();
          }
          const news = teller.news(now);
          if (news !== '') return controller.enqueue(encoder.encode(news));
          await new Promise<void>((resolve) => {
            timer = setTimeout(resolve, LOOK_MS);
          });
          if (!over) snapshots.refreshOlder(env, Date.now(), ASK_MS);
        }
      },
      cancel: end,
    },
    { highWaterMark: 0 },
  );
}

/** Says what changed in a view since it was last asked. */
class Teller {
  readonly #cache: SnapshotCache;
  readonly #name: RegistryViewName;
  readonly #filter: RegistryFilter;
  #tag: string | undefined;
  #saidAt = 0;
  #list = '';
  readonly #shown = new Map<string, RegistryEntry>();

  constructor(cache: SnapshotCache, name: RegistryViewName, filter: RegistryFilter) {
    this.#cache = cache;
    this.#name = name;
    this.#filter = filter;
  }

  news(now: number): string {
    const { tag } = this.#cache.view;
    const said = this.#tag === tag ? '' : this.#changes(now);
    this.#tag = tag;
    const news = said === '' && now - this.#saidAt >= PING_MS ? ': ping\n\n' : said;
    if (news !== '') this.#saidAt = now;
    return news;
  }

  #changes(now: number): string {
    if (this.#tag !== undefined && this.#name === 'nodes') return this.#nodes(now);
    const { nodes, tag } = this.#cache.view;
    const list = JSON.stringify(registryView(this.#name, nodes, this.#filter, now));
    if (list === this.#list) return '';
    if (this.#name === 'nodes') this.#nodes(now);
    else this.#list = list;
    return event('snapshot', list, tag);
  }

  #nodes(now: number): string {
    const { nodes, tag } = this.#cache.view;
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

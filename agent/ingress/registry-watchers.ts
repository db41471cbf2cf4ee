import type { IncomingMessage, ServerResponse } from 'node:http';
import { ApiError } from '../../shared/openai/errors.ts';
import { STREAM_HEADERS } from '../../shared/openai/headers.ts';
import { RegistryChanges } from '../../shared/routing/registry-changes.ts';
import type { RegistryFilter, RegistryViewName } from '../../shared/routing/registry-view.ts';
import type { ViewServices } from './views.ts';

/** How often the open streams look whether something changed. */
const LOOK_MS = 1_000;

/** Each compares the whole registry when it changed. */
const STREAMS_MAX = 64;

interface Watcher {
  response: ServerResponse;
  news: RegistryChanges;
}

/** Open streams of registry changes. One timer serves them all, and there is none without them. */
export class RegistryWatchers {
  readonly #open = new Set<Watcher>();
  #looking: NodeJS.Timeout | undefined;

  /** @throws ApiError 503 */
  open(
    request: IncomingMessage,
    response: ServerResponse,
    { name, filter, showing }: { name: RegistryViewName; filter: RegistryFilter; showing: ViewServices },
  ): void {
    if (this.#open.size >= STREAMS_MAX)
      throw new ApiError('server_is_overloaded', 'Too many registry streams are open here.');
    response.writeHead(200, {
      'content-type': 'text/event-stream',
      ...STREAM_HEADERS,
      'cache-control': 'no-store',
      'x-request-id': showing.requestId,
    });
    if (request.method === 'HEAD') return void response.end();
    const { registry } = showing;
    const now = () => ({ tag: String(registry.version), nodes: registry.index });
    const watcher = { response, news: new RegistryChanges(now, name, filter) };
    this.#open.add(watcher);
    response.once('close', () => this.#close(watcher));
    this.#look();
    this.#looking ??= setInterval(() => this.#look(), LOOK_MS);
  }

  /** A reader that is behind is told when it has caught up: what it missed meanwhile is then one change. */
  #look(): void {
    const now = Date.now();
    for (const { response, news } of this.#open) {
      if (response.writableNeedDrain) continue;
      const said = news.since(now);
      if (said !== '') response.write(said);
    }
  }

  #close(watcher: Watcher): void {
    this.#open.delete(watcher);
    if (this.#open.size > 0) return;
    clearInterval(this.#looking);
    this.#looking = undefined;
  }
}

import type { IncomingMessage, ServerResponse } from 'node:http';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { STREAM_HEADERS } from '../../shared/openai/forwarded-headers.ts';
import { RegistryChanges } from '../../shared/routing/registry-changes.ts';
import type { RegistryFilter, RegistryViewName } from '../../shared/routing/registry-view.ts';
import type { AgentRegistryView } from './agent-registry-view.ts';

/** Interval at which the open streams are checked for changes. */
const POLL_MS = 1_000;

/** Maximum number of open streams. For each of them, the whole registry is compared after a change. */
const STREAMS_MAX = 64;

interface WatchedRegistry {
  requestId: string;
  registry: AgentRegistryView;
}

interface Watcher {
  response: ServerResponse;
  news: RegistryChanges;
}

/** Open streams of registry changes. They share one timer, which runs only while a stream is open. */
export class RegistryChangeStreams {
  readonly #open = new Set<Watcher>();
  #pollTimer: NodeJS.Timeout | undefined;

  /** @throws ApiError 503 if there are too many streams */
  open(
    request: IncomingMessage,
    response: ServerResponse,
    { name, filter, showing }: { name: RegistryViewName; filter: RegistryFilter; showing: WatchedRegistry },
  ): void {
    if (this.#open.size >= STREAMS_MAX)
      throw new ApiError('server_is_overloaded', 'Too many registry streams are open at this ingress.');
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
    this.#poll();
    this.#pollTimer ??= setInterval(() => this.#poll(), POLL_MS);
  }

  /**
   * Sends each reader the changes since its last message. A slow reader gets nothing until it has caught up; all
   * changes that it missed are then one message.
   */
  #poll(): void {
    const now = Date.now();
    for (const { response, news } of this.#open) {
      if (response.writableNeedDrain) continue;
      const changes = news.since(now);
      if (changes !== '') response.write(changes);
    }
  }

  #close(watcher: Watcher): void {
    this.#open.delete(watcher);
    if (this.#open.size > 0) return;
    clearInterval(this.#pollTimer);
    this.#pollTimer = undefined;
  }
}

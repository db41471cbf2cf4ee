/** Requests of one ingress that find no free node: a bounded, fair line for each model, as a gateway has. In memory. */

import { ApiError } from '../../shared/openai/errors.ts';
import type { QueueEntry } from '../../shared/queue/queue-entry.ts';
import { runQueued } from '../../shared/queue/run-queued.ts';
import { type PlaceAnswer, WaitQueue } from '../../shared/queue/wait-queue.ts';
import { BusyNodes } from '../../shared/routing/busy.ts';
import type { Priority } from '../../shared/routing/fair-queue.ts';
import { AttemptError } from '../../shared/upstream/attempt-error.ts';
import { after } from '../after.ts';

export interface QueueLimits {
  /** The longest waits, milliseconds; 0: none. */
  unaryMs: number;
  streamMs: number;
  /** Requests that may wait for one model. */
  places: number;
}

/** As long as a gateway lets its clients wait; each place is one of the ingress's connections. */
export const QUEUE_LIMITS: QueueLimits = { unaryMs: 60_000, streamMs: 600_000, places: 256 };

export interface Queued<D> {
  /** Names its place. */
  name: string;
  model: string;
  /** Names the nodes that it may go to. */
  scope(): string;
  /** Who asks: clients at different addresses have turns alike. */
  client: string;
  priority: Priority;
  streaming: boolean;
  waiter: QueueEntry;
  tryNodes(): Promise<D>;
  left(): boolean;
  whenLeft(call: () => void): void;
}

export class Queues {
  readonly busyNodes = new BusyNodes();
  readonly #limits: QueueLimits;
  /** By model: those that somebody waits for, or did a moment ago. */
  readonly #lines = new Map<string, WaitQueue>();
  #closed = false;

  constructor(limits: QueueLimits) {
    this.#limits = limits;
  }

  longestWait(streaming: boolean): number {
    return streaming ? this.#limits.streamMs : this.#limits.unaryMs;
  }

  /** Requests that wait now, for whichever model. */
  get waiting(): number {
    let sum = 0;
    for (const { depth } of this.#lines.values()) sum += depth.waiting;
    return sum;
  }

  /** @throws ApiError of the last try; 429 queue_full; 503 no_capacity. AttemptError `cancelled` when the client left */
  inTurn<D>(request: Queued<D>): Promise<D> {
    const { model, waiter, streaming, scope } = request;
    return runQueued({
      model,
      waiter,
      waitMs: this.longestWait(streaming),
      behind: () => this.#lines.size > 0 && (this.#lines.get(model)?.waitsIn(scope()) ?? false),
      wait: (until, back) => this.#wait(request, until, back),
      tryNodes: () => request.tryNodes(),
      left: request.left,
      now: () => Date.now(),
    });
  }

  async #wait<D>(request: Queued<D>, until: number, back: boolean): Promise<PlaceAnswer> {
    const { name, client, priority, waiter, model } = request;
    if (this.#closed) throw leaving();
    const waitMs = until - Date.now();
    if (waitMs <= 0) return { kind: 'late' };
    const place = { name, project: '', key: client, scope: request.scope(), priority, weight: 1, busy: waiter.busy };
    const asked = { ...place, waitMs, back, places: this.#limits.places, begun: waiter.begun };
    const answer = await this.#lineOf(model).wait(asked, (leave) => {
      let waits = true;
      request.whenLeft(() => waits && leave());
      return () => {
        waits = false;
      };
    });
    if (request.left()) throw new AttemptError('cancelled', 'the client left');
    if (this.#closed) throw leaving();
    return answer;
  }

  #lineOf(model: string): WaitQueue {
    for (const [name, line] of this.#lines) if (line.idle) this.#lines.delete(name);
    const line = this.#lines.get(model) ?? new WaitQueue({ now: () => Date.now(), after });
    this.#lines.set(model, line);
    return line;
  }

  /** One of our requests ended there: its place may be somebody's who waits. */
  ended(session: string): void {
    for (const line of this.#lines.values()) if (line.wants(session)) line.freed(session, 1);
  }

  /** Whoever waits is told that this endpoint is leaving. Idempotent. */
  close(): void {
    this.#closed = true;
    for (const line of this.#lines.values()) line.close();
    this.#lines.clear();
  }
}

function leaving(): ApiError {
  return new ApiError('no_capacity', 'The agent behind this endpoint is leaving; ask another one.');
}

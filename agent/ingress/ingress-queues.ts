/** The queues of one ingress, in memory: a bounded, fair queue for each model, as at a gateway. */

import { startTimer } from '../../node/timers.ts';
import { AttemptError } from '../../shared/attempts/attempt-error.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import type { QueueRequest } from '../../shared/proxy/proxy-host.ts';
import { type TurnResult, WaitQueue } from '../../shared/queue/wait-queue.ts';
import { BusyNodes } from '../../shared/routing/busy-nodes.ts';

export interface QueueLimits {
  /**
   * Maximum wait of a non-streaming request, in milliseconds; 0: non-streaming requests do not wait. `streamMs` is the
   * same for streaming requests.
   */
  unaryMs: number;
  streamMs: number;
  /** Maximum number of requests that wait for one model. */
  places: number;
}

/** The same maximum waits as at a gateway. Each waiting request uses one of the ingress's connections. */
export const QUEUE_LIMITS: QueueLimits = { unaryMs: 60_000, streamMs: 600_000, places: 256 };

/** A client of the ingress. Addresses share each queue fairly. */
export interface IngressCaller {
  readonly address: string;
}

export class IngressQueues {
  readonly busyNodes = new BusyNodes();
  readonly #limits: QueueLimits;
  /** Queues by model, only of models that have, or recently had, a waiting request. */
  readonly #lines = new Map<string, WaitQueue>();
  #closed = false;

  constructor(limits: QueueLimits) {
    this.#limits = limits;
  }

  longestWait(streaming: boolean): number {
    return streaming ? this.#limits.streamMs : this.#limits.unaryMs;
  }

  /** Number of waiting requests over all models. */
  get waiting(): number {
    let sum = 0;
    for (const { depth } of this.#lines.values()) sum += depth.waiting;
    return sum;
  }

  /** True if a request already waits for the same nodes. */
  isQueued(model: string, scope: () => string): boolean {
    return this.#lines.size > 0 && (this.#lines.get(model)?.hasWaiterIn(scope()) ?? false);
  }

  /** Position in the queue, from 1; undefined if the request does not wait now. */
  position(model: string, name: string): number | undefined {
    return this.#lines.get(model)?.position(name);
  }

  /**
   * Waits until the request may try a node.
   * @throws ApiError 503 if this ingress is closing, AttemptError `cancelled` if the client disconnected
   */
  async waitForTurn(queued: QueueRequest<IngressCaller>): Promise<TurnResult> {
    if (this.#closed) throw closing();
    const { name, scope, priority, busy, back, begun, model, until, client, caller } = queued;
    const waitMs = until - performance.now();
    if (waitMs <= 0) return { kind: 'late' };
    const place = { name, project: '', key: caller.address, scope, priority, weight: 1, busy };
    const asked = { ...place, waitMs, back, places: this.#limits.places, begun };
    const answer = await this.#lineOf(model).wait(asked, (leave) => {
      let waits = true;
      client.on(() => waits && leave());
      return () => {
        waits = false;
      };
    });
    if (client.disconnected) throw new AttemptError('cancelled', 'the client disconnected');
    if (this.#closed) throw closing();
    return answer;
  }

  #lineOf(model: string): WaitQueue {
    for (const [name, line] of this.#lines) if (line.idle) this.#lines.delete(name);
    const line = this.#lines.get(model) ?? new WaitQueue({ now: () => performance.now(), after: startTimer });
    this.#lines.set(model, line);
    return line;
  }

  /** A request of this ingress ended at this node, so a waiting request may take its place. */
  ended(session: string): void {
    for (const line of this.#lines.values()) if (line.hasWaiterFor(session)) line.freed(session, 1);
  }

  /** Refuses all waiting requests, because this ingress closes. Idempotent. */
  close(): void {
    this.#closed = true;
    for (const line of this.#lines.values()) line.close();
    this.#lines.clear();
  }
}

function closing(): ApiError {
  return new ApiError('no_capacity', 'The agent of this endpoint is shutting down; use another endpoint.');
}

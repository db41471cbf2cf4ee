import { type TurnRequest, type TurnResult, WAIT_TIMED_OUT, WaitQueue } from '../../shared/queue/wait-queue.ts';
import { DemandNotifier } from '../factory/demand-notifier.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { abandonedRow, RefusalWriter } from '../usage/refusal-writer.ts';
import type { UsageRow } from '../usage/usage-row.ts';

/**
 * A request that got its turn and does not call again within this time counts as gone: it has found a node, or ended.
 */
const TURN_USE_MS = 2_000;

interface QueuedRequest {
  since: number;
  /** Infinite while the request waits. From its turn on: when the request counts as gone, unless it calls again. */
  until: number;
}

/** The requests in one model's queue, including those that are making an attempt. Bounded by the queue's slots. */
class QueueWaiters {
  /** Waiting requests by internal id. */
  readonly #known = new Map<string, QueuedRequest>();

  /** Adds a request, or continues its wait. `since`: when it began to wait. */
  enter(name: string, since: number): { tries(now: number): void; leave(): void } {
    const waiter: QueuedRequest = { since, until: Number.POSITIVE_INFINITY };
    this.#known.set(name, waiter);
    return {
      tries: (now) => {
        waiter.until = now + TURN_USE_MS;
      },
      // A later call of the same request may have replaced this waiter.
      leave: () => {
        if (this.#known.get(name) === waiter) this.#known.delete(name);
      },
    };
  }

  /** Returns the number of requests; `oldestMs`: how long the oldest one has waited. */
  count(now: number): { waiting: number; oldestMs: number } {
    let first = now;
    for (const [name, { since, until }] of this.#known) {
      if (until <= now) this.#known.delete(name);
      else if (since < first) first = since;
    }
    return { waiting: this.#known.size, oldestMs: now - first };
  }
}

/** Maximum busy nodes whose completions are observed concurrently. */
const WATCHED_MAX = 64;
/** Delay before a node's object that did not answer is called again. */
const WATCH_RETRY_MS = 1_000;

export interface QueuedTurnRequest extends TurnRequest {
  /** The record to write if the request's client disconnects. Absent: none. */
  ifLeft?: UsageRow | undefined;
  /** Milliseconds for which the request waited in queues before. */
  queuedMs?: number;
}

interface QueueDepth {
  waiting: number;
  interactive: number;
  batch: number;
  /** Number of nodes whose completions are observed. */
  watched: number;
}

/**
 * The queue of one model: requests wait here while no node that serves the model is free. A request that finds a free
 * node never calls this object. Nothing is stored: a waiting request calls again if its call to this object fails.
 */
export class QueueObject extends GatewayObject {
  readonly #line = new WaitQueue({ now: steadyNow, after: (ms, onTimer) => this.ctx.clock.after(ms, onTimer) });
  readonly #refusals = new RefusalWriter();
  /** Sessions whose completions are observed; at most WATCHED_MAX. */
  readonly #watched = new Set<string>();
  readonly #waiters = new QueueWaiters();
  /** Reports demand, because an autoscaler may have to start a node. */
  readonly #notifier = new DemandNotifier({
    env: this.env,
    clock: { now: steadyNow, after: (ms, onTimer) => this.ctx.clock.after(ms, onTimer) },
    tell: (factory) => factory.queued(this.ctx.name, this.#waiters.count(steadyNow())),
    lasts: () => this.#waiters.count(steadyNow()).waiting > 0,
  });

  async fetch(request: Request): Promise<Response> {
    const asked = (await request.json()) as QueuedTurnRequest;
    const { signal } = request;
    const enteredAt = steadyNow();
    if (signal.aborted) return Response.json(WAIT_TIMED_OUT);
    const waiter = this.#waiters.enter(asked.name, enteredAt - (asked.queuedMs ?? 0));
    const onLeft = () => {
      waiter.leave();
      this.#notifier.news();
      this.#disconnected(asked, steadyNow() - enteredAt);
    };
    signal.addEventListener('abort', onLeft);
    if (!asked.back) this.#notifier.news();
    try {
      const answer = await this.#wait(asked, signal);
      if (answer.kind === 'turn') waiter.tries(steadyNow());
      else {
        waiter.leave();
        this.#notifier.news();
      }
      return Response.json(answer);
    } finally {
      signal.removeEventListener('abort', onLeft);
    }
  }

  /**
   * Writes the usage record of a request whose client disconnected. The isolate cannot write it: the disconnection also
   * ended its work for the request.
   */
  #disconnected({ ifLeft, queuedMs = 0 }: QueuedTurnRequest, waitedMs: number): void {
    if (ifLeft === undefined) return;
    this.#refusals.add(abandonedRow(ifLeft, queuedMs + waitedMs, Date.now()), this.env, this.ctx);
  }

  /** Returns a request's position; null: it does not wait here now. */
  position(name: string): number | null {
    return this.#line.position(name) ?? null;
  }

  depth(): QueueDepth {
    return { ...this.#line.depth, watched: this.#watched.size };
  }

  #wait(asked: TurnRequest, signal: AbortSignal): Promise<TurnResult> {
    const { STOPPING: stopping } = this.env;
    const signals = stopping === undefined || asked.begun === true ? [signal] : [signal, stopping];
    if (signals.some(({ aborted }) => aborted)) return Promise.resolve(WAIT_TIMED_OUT);
    const answer = this.#line.wait(asked, (leave) => {
      for (const one of signals) one.addEventListener('abort', leave, { once: true });
      return () => {
        for (const one of signals) one.removeEventListener('abort', leave);
      };
    });
    for (const session of asked.busy) this.#watch(session);
    return answer;
  }

  /** Observes completions at a busy node while a request waits for it. */
  #watch(session: string): void {
    if (this.#watched.has(session) || this.#watched.size >= WATCHED_MAX) return;
    this.#watched.add(session);
    this.ctx.waitUntil(this.#follow(session).finally(() => this.#watched.delete(session)));
  }

  async #follow(session: string): Promise<void> {
    let seen: number | undefined;
    while (this.#line.hasWaiterFor(session)) {
      try {
        const askedAt = steadyNow();
        const ended = await this.env.TUNNEL.getByName(session).ended(seen ?? -1);
        // If the count is smaller than before, the node's tunnel object was replaced, and its new instance counts from
        // zero.
        const count = seen === undefined ? 0 : ended >= seen ? ended - seen : 1;
        const before = seen;
        seen = ended;
        if (count > 0) this.#line.freed(session, count);
        else if (ended === before && steadyNow() - askedAt < WATCH_RETRY_MS) await pause(); // If the object answered immediately without a change, it has too many listeners, so the next call is delayed.
      } catch {
        seen = undefined;
        await pause();
      }
    }
  }
}

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, WATCH_RETRY_MS));
}

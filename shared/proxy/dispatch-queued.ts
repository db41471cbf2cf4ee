/** Finds the node that answers. Tries nodes, waits in the queue if none is free, and then tries again. */

import { dispatch, type UpstreamResponse } from '../attempts/dispatch.ts';
import type { ResponseStream } from '../attempts/started-response.ts';
import type { ApiError } from '../openai/api-errors.ts';
import type { QueueEntry } from '../queue/queue-entry.ts';
import { type QueuedWork, runQueued } from '../queue/run-queued.ts';
import type { TurnResult } from '../queue/wait-queue.ts';
import type { NodeChoice } from '../routing/choose-node.ts';
import { trustScope } from '../routing/trusted-providers.ts';
import { coldStartingError, findColdModel, isDormant } from './cold-model.ts';
import type { RequestContext } from './request-context.ts';
import { RouteAttempts } from './route-attempts.ts';

export type DispatchResult = UpstreamResponse<NodeChoice, ResponseStream>;

/** @throws ApiError if no node answered, AttemptError `cancelled` if the client disconnected */
export function dispatchQueued<C>(context: RequestContext<C>): Promise<DispatchResult> {
  const { host, entry } = context;
  if (entry.attempts === 0) host.memory.retries.asked(host.clock.now());
  return runQueued(new QueuedDispatch(context, () => tryNodes(context)));
}

function tryNodes<C>(context: RequestContext<C>): Promise<DispatchResult> {
  const { host, route, entry } = context;
  if (entry.queuedMs === 0) return dispatch(new RouteAttempts(context));
  const refreshed = Promise.resolve(host.refresh([route.request.model, ...route.fallbacks]));
  return refreshed.then(() => dispatch(new RouteAttempts(context)));
}

/** The work of a request that may have to wait for a node. */
export class QueuedDispatch<C> implements QueuedWork<DispatchResult> {
  readonly model: string;
  readonly waitMs: number;
  readonly entry: QueueEntry;
  readonly tryNodes: () => Promise<DispatchResult>;
  readonly #context: RequestContext<C>;
  readonly #scope: () => string;

  /**
   * @param tryNodes one try at the nodes that are available now
   * @param scope name of the nodes to which the request may go; narrower than the route's if it may not use all of them
   */
  constructor(
    context: RequestContext<C>,
    tryNodes: () => Promise<DispatchResult>,
    scope: () => string = () => queueScope(context),
  ) {
    this.model = context.route.request.model;
    this.waitMs = context.waitMs;
    this.entry = context.entry;
    this.tryNodes = tryNodes;
    this.#context = context;
    this.#scope = scope;
  }

  late(): ApiError | undefined {
    const cold = findColdModel(this.#context.route);
    return cold === undefined ? undefined : coldStartingError(cold);
  }

  mustWaitFirst(): boolean {
    return this.#context.host.isQueued(this.model, this.#scope);
  }

  async wait(until: number, back: boolean): Promise<TurnResult> {
    const { host, route, entry, request, caller, info, priority, name, parsed, record } = this.#context;
    // Repeated before each wait, because an order may be lost. The host limits how often it sends one.
    const cold = findColdModel(route);
    if (cold !== undefined && isDormant(cold)) route.cold?.ask(cold.model);
    const ended = record.queueEntered();
    const { busy, begun, queuedMs } = entry;
    const { model } = this;
    const bytes = parsed.body.kind === 'kept' ? parsed.body.bytes.length : 0;
    const place = { name, model, scope: this.#scope(), caller, priority, busy, begun, queuedMs, bytes, until, back };
    const { client } = request;
    const answer = await host.waitForTurn({ ...place, streaming: parsed.streaming, info, client, route });
    ended(answer.kind);
    return answer;
  }

  clientDisconnected(): boolean {
    return this.#context.request.client.disconnected;
  }

  now(): number {
    return this.#context.host.clock.steadyNow();
  }
}

/** A name for the set of nodes to which a request may go. Requests for the same nodes wait in one queue. */
export function queueScope({ route }: Pick<RequestContext<unknown>, 'route'>): string {
  const scope = `${trustScope(route.trust)} ${route.demand.words}`;
  return route.onlyScope === undefined ? scope : `${scope} ${route.onlyScope}`;
}

/** Finds the node that answers: tries nodes, waits in the queue if none is free, and tries again. */
import { type QueuedWork, runQueued } from '../queue/run-queued.ts';
import { chooseNode, type NodeChoice, type RoutingQuery, requestEnded, requestStarted } from '../routing/choose.ts';
import { endsBeforeEngine, indicatesHang, isNotNow } from '../routing/retry-policy.ts';
import { trustScope } from '../routing/trust.ts';
import { type AttemptPlan, type DispatchHost, dispatch, type UpstreamResponse } from '../upstream/dispatch.ts';
import { bodyFailure, isRepeatable } from '../upstream/parsed-request.ts';
import { isEventStream, type ResponseStream, type StartedResponse, startResponse } from '../upstream/response.ts';
import { coldStartingError, findColdModel } from './cold-model.ts';
import { routingQuery } from './filter.ts';
import type { NodeMemory } from './host.ts';
import type { RequestContext } from './request-context.ts';
import { sealStaleError, withContentKey } from './sealed.ts';

export type DispatchResult = UpstreamResponse<NodeChoice, ResponseStream>;

/** @throws ApiError if no node answered, AttemptError `cancelled` if the client left */
export function dispatchQueued<C>(context: RequestContext<C>): Promise<DispatchResult> {
  const { host, route, entry } = context;
  const models = [route.request.model, ...route.fallbacks];
  if (entry.attempts === 0) host.memory.retries.asked(host.clock.now());
  return runQueued(
    queueableDispatch(context, () => {
      if (entry.queuedMs === 0) return dispatch(dispatchHost(context));
      return Promise.resolve(host.refresh(models)).then(() => dispatch(dispatchHost(context)));
    }),
  );
}

/**
 * `tryNodes`: one try at the current nodes. `scope`: narrower than the route's if not every node of the route will do.
 */
export function queueableDispatch<C>(
  context: RequestContext<C>,
  tryNodes: () => Promise<DispatchResult>,
  scope: () => string = () => queueScope(context),
): QueuedWork<DispatchResult> {
  const { host, route, entry, request, caller, info, priority, name, parsed } = context;
  const { model } = route.request;
  const { client } = request;
  return {
    model,
    waitMs: context.waitMs,
    entry,
    late: () => {
      const cold = findColdModel(route);
      return cold === undefined ? undefined : coldStartingError(cold);
    },
    behind: () => host.isQueued(model, scope),
    wait: async (until, back) => {
      const ended = context.record.queueEntered();
      const { busy, begun, queuedMs } = entry;
      const bytes = parsed.body.kind === 'kept' ? parsed.body.bytes.length : 0;
      const place = { name, model, scope: scope(), caller, priority, busy, begun, queuedMs, bytes, until, back };
      const answer = await host.waitForTurn({ ...place, streaming: parsed.streaming, info, client, route });
      ended(answer.kind);
      return answer;
    },
    tryNodes,
    left: () => client.left,
    now: host.clock.steadyNow,
  };
}

/** Names the nodes that a request may go to. Requests for the same nodes wait in one queue. */
export function queueScope({ route }: Pick<RequestContext<unknown>, 'route'>): string {
  const scope = `${trustScope(route.trust)} ${route.demand.words}`;
  return route.onlyScope === undefined ? scope : `${scope} ${route.onlyScope}`;
}

/** The nodes of a request's route, as `dispatch` tries them. */
export function dispatchHost<C>(context: RequestContext<C>): DispatchHost<NodeChoice, ResponseStream> {
  const { host, route, entry, request, parsed, record, engineAttempts } = context;
  const { clock, memory } = host;
  const among: RoutingQuery['among'] = (candidates) => entry.among(candidates, clock.now());
  let isProbe = false;
  return {
    choose: (tried) => {
      const isAvoided = avoidedBy(memory, clock.now(), isRepeatable(parsed));
      return chooseNode(route.nodes, routingQuery(route, clock, { among, isAvoided }), tried);
    },
    attempt: (choice, plan) => {
      entry.attempts = plan.number;
      engineAttempts.count++;
      isProbe = memory.breakers.started(choice.node.session, clock.now());
      requestStarted(choice);
      return attempt(context, choice, plan);
    },
    onFailure: ({ node }, code) => {
      const now = clock.now();
      if (endsBeforeEngine(code)) engineAttempts.count--;
      entry.onFailure(node.session, code, now);
      record.attempt(code, node.session);
      if (code === 'engine_unreachable') memory.refused.mark(node.session, now);
      if (indicatesHang(code)) memory.breakers.hangs(node.session, now);
      host.onAttemptFailed(node, code);
    },
    onEnd: (choice, ending) => {
      requestEnded(choice, ending);
      const { session } = choice.node;
      host.onAttemptEnded(session, ending, memory.breakers.ended(session, ending, isProbe, clock.now()));
    },
    first: entry.attempts + 1,
    retriesMax: entry.retriesLeft,
    mayRetry: () => memory.retries.take(clock.now(), route.retryShare),
    repeatable: () => isRepeatable(parsed),
    left: () => request.client.left,
    whenLeft: (call) => request.client.on(call),
    refusal: (failure) => {
      if (failure === undefined && route.isStale?.() === true) return sealStaleError();
      return bodyFailure(parsed) ?? host.refusal(route, failure);
    },
  };
}

/** Nodes to avoid while others are available. */
function avoidedBy(memory: NodeMemory, now: number, mayProbe: boolean): RoutingQuery['isAvoided'] {
  const { refused } = memory;
  const isFailing = memory.breakers.avoided(now, mayProbe);
  const isAvoided = memory.avoided?.(now);
  if (isAvoided === undefined && refused.isEmpty(now)) return isFailing;
  return (node) => refused.has(node.session, now) || isAvoided?.(node) === true || isFailing?.(node) === true;
}

async function attempt<C>(
  context: RequestContext<C>,
  choice: NodeChoice,
  plan: AttemptPlan,
): Promise<StartedResponse<ResponseStream>> {
  const { host, parsed, route, request, caller, continues, reservation, record } = context;
  const { clock, memory } = host;
  if (parsed.fill !== undefined) await parsed.fill();
  const kept = parsed.body.kind === 'kept';
  const stream = await host.open({
    choice,
    plan: kept ? plan : { ...plan, movable: false }, // A streamed body is not kept, so it cannot be sent to another node.
    dispatch: withContentKey(contextForModel(context, choice), choice),
    caller,
    route,
    request,
    waitedMs: clock.steadyNow() - context.admittedAt,
    continues,
    offloads: parsed.streaming && kept && !continues && reservation?.concurrent !== true,
  });
  const { load } = stream.head;
  if (isNotNow(stream.status)) memory.refused.mark(choice.node.session, clock.now());
  if (load !== undefined) route.nodes.live.heard(choice.node.session, load);
  const whole = stream.whole !== undefined && !isEventStream(stream.head);
  const begun = whole ? { answer: stream, chunks: [], complete: true } : await startResponse(stream);
  const { forwardMs, engineMs } = stream.head;
  const { session, region } = choice.node;
  record.attempt(stream.status, session, { region, model: choice.model, forwardMs, engineMs });
  return begun;
}

/** The context for the chosen model: the same, or with the route of the fallback that was chosen. */
export function contextForModel<C>(
  context: RequestContext<C>,
  { model, request }: Pick<NodeChoice, 'model' | 'request'>,
): RequestContext<C> {
  const { route } = context;
  if (model === route.request.model) return context;
  return {
    ...context,
    route: { ...route, request, fallbacks: [] },
    receipt: route.receiptFor(model),
    timeouts: route.timeoutsFor(model),
  };
}

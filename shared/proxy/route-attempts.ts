import type { AttemptError } from '../attempts/attempt-error.ts';
import type { AttemptFailure } from '../attempts/attempt-request.ts';
import type { AttemptPlan, DispatchHost } from '../attempts/dispatch.ts';
import { bodyFailure, isRepeatable } from '../attempts/parsed-request.ts';
import {
  isEventStream,
  type ResponseStream,
  type StartedResponse,
  startResponse,
} from '../attempts/started-response.ts';
import type { ApiError } from '../openai/api-errors.ts';
import {
  chooseNode,
  type NodeChoice,
  type RoutingQuery,
  requestEnded,
  requestStarted,
} from '../routing/choose-node.ts';
import { noteFirstToken } from '../routing/first-token-times.ts';
import { endsBeforeEngine, indicatesHang, isNotNow, type RequestOutcome } from '../routing/retry-policy.ts';
import { routingQuery } from './filter-nodes.ts';
import type { NodeMemory } from './proxy-host.ts';
import type { RequestContext } from './request-context.ts';
import { withContentKey } from './sealed-requests.ts';

/**
 * One try at the nodes that are available now on a request's route. `dispatch` calls `choose` and `attempt` until a
 * node answers.
 */
export class RouteAttempts<C> implements DispatchHost<NodeChoice, ResponseStream> {
  readonly #context: RequestContext<C>;
  /** True if the attempt tests a node with an open breaker. */
  #isProbe = false;

  constructor(context: RequestContext<C>) {
    this.#context = context;
  }

  choose(tried: ReadonlySet<string>): NodeChoice | undefined | Promise<NodeChoice | undefined> {
    const { host, route, entry, parsed } = this.#context;
    const { clock, memory } = host;
    const query = routingQuery(route, clock, {
      among: (candidates) => entry.selectCandidates(candidates, clock.now()),
      avoided: avoidedBy(memory, clock.now(), isRepeatable(parsed)),
    });
    return chooseNode(route.nodes, query, tried);
  }

  async attempt(choice: NodeChoice, plan: AttemptPlan): Promise<StartedResponse<ResponseStream>> {
    const { host, entry, engineAttempts, parsed, route, record, watch } = this.#context;
    const { clock, memory } = host;
    const { session, region } = choice.node;
    entry.attempts = plan.number;
    engineAttempts.count++;
    this.#isProbe = memory.breakers.started(session, clock.now());
    requestStarted(choice);
    if (parsed.fill !== undefined) await parsed.fill();
    const openedAt = clock.steadyNow();
    const stream = await this.#open(choice, plan);
    const { load, forwardMs, engineMs } = stream.head;
    if (isNotNow(stream.status)) memory.refused.mark(session, clock.now());
    if (load !== undefined) route.nodes.live.setLoad(session, load);
    // A response that is watched must be read here; the runtime could pass a whole one on without the pipeline.
    const whole = watch === undefined && stream.whole !== undefined && !isEventStream(stream.head);
    const started = whole ? { answer: stream, chunks: [], complete: true } : await startResponse(stream);
    if (stream.status === 200 && isEventStream(stream.head))
      noteFirstToken(choice.live, clock.steadyNow() - openedAt, clock.now());
    const tier = choice.byTier ? { tier: choice.node.tier } : {};
    record.attempt(stream.status, session, { region, model: choice.model, ...tier, forwardMs, engineMs });
    return started;
  }

  #open(choice: NodeChoice, plan: AttemptPlan): Promise<ResponseStream> {
    const { host, parsed, route, request, caller, continues, reservation, admittedAt, watch } = this.#context;
    const kept = parsed.body.kind === 'kept';
    return host.open({
      choice,
      // A streamed body is not buffered, so it cannot be sent to another node.
      plan: kept ? plan : { ...plan, movable: false },
      dispatch: withContentKey(contextForModel(this.#context, choice), choice),
      caller,
      route,
      request,
      waitedMs: host.clock.steadyNow() - admittedAt,
      continues,
      offloads: parsed.streaming && kept && !continues && reservation?.concurrent !== true && watch?.untilEnd !== true,
    });
  }

  onFailure({ node }: NodeChoice, code: AttemptFailure): void {
    const { host, entry, engineAttempts, record } = this.#context;
    const now = host.clock.now();
    if (endsBeforeEngine(code)) engineAttempts.count--;
    entry.onFailure(node.session, code, now);
    record.attempt(code, node.session);
    if (code === 'engine_unreachable') host.memory.refused.mark(node.session, now);
    if (indicatesHang(code)) host.memory.breakers.hangs(node.session, now);
    host.onAttemptFailed(node, code);
  }

  onEnd(choice: NodeChoice, ending: RequestOutcome): void {
    const { host } = this.#context;
    const { session } = choice.node;
    requestEnded(choice, ending);
    const breaker = host.memory.breakers.ended(session, ending, this.#isProbe, host.clock.now());
    host.onAttemptEnded(session, ending, breaker);
  }

  get first(): number {
    return this.#context.entry.attempts + 1;
  }

  get retriesMax(): number {
    return this.#context.entry.retriesLeft;
  }

  mayRetry(): boolean {
    const { host, route } = this.#context;
    return host.memory.retries.take(host.clock.now(), route.retryShare);
  }

  repeatable(): boolean {
    return isRepeatable(this.#context.parsed);
  }

  clientDisconnected(): boolean {
    return this.#context.request.client.disconnected;
  }

  onDisconnect(call: () => void): void {
    this.#context.request.client.on(call);
  }

  refusal(failure: AttemptError | undefined): ApiError {
    const { host, route, parsed } = this.#context;
    const stale = failure === undefined ? route.stale?.() : undefined;
    if (stale !== undefined) return stale;
    return bodyFailure(parsed) ?? host.refusal(route, failure);
  }
}

/** Returns the sessions of the nodes that are avoided while others are available. */
function avoidedBy(memory: NodeMemory, now: number, mayProbe: boolean): RoutingQuery['avoided'] {
  const refused = memory.refused.sessions(now);
  const failing = memory.breakers.avoided(now, mayProbe);
  const others = memory.avoided?.(now) ?? [];
  if (refused.length + failing.length + others.length === 0) return undefined;
  return new Set([...refused, ...failing, ...others]);
}

/** The context for the chosen model: the given context, or a copy with the route of the chosen fallback. */
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

/** Decides, before any node gets the request, whether the request can be sent, may wait for a node, or is refused. */
import { ApiError } from '../openai/api-errors.ts';
import { type RoutingQuery, unmetRequirements } from '../routing/choose-node.ts';
import { isServing } from '../routing/node-index.ts';
import { isTrusted } from '../routing/trusted-providers.ts';
import { RESUME_WINDOW_MS } from '../wire/protocol-constants.ts';
import { approximateDuration, coldStartWaitMs, findColdModel } from './cold-model.ts';
import { endsWithin, findModelStart, mayEndWithin, modelStartingError } from './loading-model.ts';
import type { Host, HostClock, RequestInfo, Route } from './proxy-host.ts';

/**
 * Returns how long the request waits if no node is free, in milliseconds.
 * @throws ApiError 403 if no provider is trusted, or if the request may not start a cold model; 404 if no node has
 * served the model recently; 412 if no node meets the requirements; 503 `model_starting` if the model loads for longer
 * than the request may wait; 503 `no_capacity` if no node serves the model and the request does not wait, or if the
 * last node left long ago
 */
export function filter(route: Route, info: RequestInfo, host: Pick<Host<never>, 'clock' | 'refusal'>): number {
  const { clock } = host;
  const now = clock.now();
  route.requireTrust();
  requireMet(route, clock);
  const models = [route.request.model, ...route.fallbacks];
  info.known = isKnown(route, route.request.model);
  const cold = findColdModel(route);
  if (cold !== undefined) return coldStartWaitMs(cold, route);
  const start = findModelStart(route.nodes, models, route.trust, now);
  if (start !== undefined) {
    const { startWaitMs } = route;
    const waits = startWaitMs === undefined ? endsWithin(start, route.waitMs) : mayEndWithin(start, startWaitMs);
    if (!waits) throw modelStartingError(start);
    return startWaitMs ?? route.waitMs;
  }
  if (models.some((model) => isServing(route.nodes.model(model)))) return route.waitMs;
  if (!models.some((model) => isKnown(route, model))) {
    throw new ApiError('model_not_found', `The model '${route.request.model}' does not exist here.`, {
      param: 'model',
    });
  }
  if (route.waitMs === 0 || !mayBecomeServed(route)) throw host.refusal(route, undefined);
  const goneMs = now - lastLeft(route, models);
  if (goneMs > route.restartGraceMs) throw modelGoneError(route.request.model, goneMs);
  return route.waitMs;
}

/** The criteria for choosing a node at this moment. */
export function routingQuery(
  { request, fallbacks, demand, policyFor, trust, only }: Route,
  clock: Pick<HostClock, 'now' | 'random'>,
  more: Pick<RoutingQuery, 'avoided' | 'among'> = {},
): RoutingQuery {
  const fixed = { request, fallbacks, demand, policyFor, trust, only, lostLatelyMs: RESUME_WINDOW_MS };
  return { ...fixed, ...more, now: clock.now(), random: clock.random };
}

/** Refuses a request with requirements that no node meets, because waiting would not change that. */
function requireMet(route: Route, clock: Pick<HostClock, 'now' | 'random'>): void {
  if (route.demand.require.length === 0) return;
  const instead = unmetRequirements(route.nodes, routingQuery(route, clock));
  if (instead === undefined) return;
  const message = `No node that may receive this request meets its requirements: ${instead}.`;
  throw new ApiError('requirement_not_met', message, { param: 'x-otela-require' });
}

/** True if a request that ended with `error` may find a node by waiting. */
export function isWorthWaiting(route: Route, error: ApiError): boolean {
  return (route.mayWait?.(error) ?? true) && mayBecomeServed(route);
}

/**
 * For a cold model: true unless its start failed too often. Otherwise true if an allowed node served a model of the
 * route before, or if the operator expects one.
 */
function mayBecomeServed(route: Route): boolean {
  const cold = findColdModel(route);
  if (cold !== undefined) return cold.state !== 'resting';
  return [route.request.model, ...route.fallbacks].some(
    (model) =>
      route.expects(model) || (route.nodes.model(model)?.all.some((entry) => isTrusted(route.trust, entry)) ?? false),
  );
}

/**
 * When the last allowed node left, in milliseconds since 1970. Infinite if an allowed node has not left, or if the
 * operator expects nodes for one of the models.
 */
function lastLeft(route: Route, models: readonly string[]): number {
  let last = '';
  for (const model of models) {
    if (route.expects(model)) return Number.POSITIVE_INFINITY;
    for (const entry of route.nodes.model(model)?.all ?? []) {
      if (!isTrusted(route.trust, entry)) continue;
      if (entry.state !== 'LEFT') return Number.POSITIVE_INFINITY;
      if (entry.updated_at > last) last = entry.updated_at;
    }
  }
  // biome-ignore lint/style/noRestrictedGlobals: reads a text, asks no clock
  return last === '' ? Number.POSITIVE_INFINITY : Date.parse(last);
}

/** The error if the model's last node left so long ago that a restart would be finished. */
function modelGoneError(model: string, goneMs: number): ApiError {
  const message = `The last node that served '${model}' left ${approximateDuration(goneMs)} ago, and none is being started.`;
  return new ApiError('no_capacity', message, { param: 'model', headers: { 'x-should-retry': 'false' } });
}

function isKnown(route: Route, model: string): boolean {
  return route.nodes.model(model) !== undefined || route.expects(model) || route.cold?.find(model) !== undefined;
}

export function noCapacityError(model: string): ApiError {
  return new ApiError('no_capacity', `No node serves '${model}' now; try again shortly.`);
}

/**
 * Derives a request's route from its model and headers: aliases, trust, requirements, and a view of the registry with
 * suitable nodes.
 */

import type { ParsedRequest } from '../../shared/attempts/parsed-request.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { findEndpoint } from '../../shared/openai/endpoints.ts';
import { quoteForMessage } from '../../shared/openai/quote-for-message.ts';
import { type ColdModels, readStartWait } from '../../shared/proxy/cold-model.ts';
import { routedRequest } from '../../shared/proxy/policy-input.ts';
import type { Route } from '../../shared/proxy/proxy-host.ts';
import { readRequirements } from '../../shared/proxy/read-requirements.ts';
import { type Candidate, candidatePool, NO_REQUIREMENTS } from '../../shared/routing/candidates.ts';
import type { RoutingQuery } from '../../shared/routing/choose-node.ts';
import { dormantModel } from '../../shared/routing/dormant-models.ts';
import { isServing, type NodeIndex } from '../../shared/routing/node-index.ts';
import type { Trust } from '../../shared/routing/trusted-providers.ts';
import type { Account } from '../accounts/account.ts';
import { type GatewaySettings, settingsOf, timeoutsOf } from '../accounts/gateway-settings.ts';
import { catalogueEntryOf, hasAccess, lifecycleHeaders } from '../accounts/model-access.ts';
import { receiptOf } from '../accounts/payer-receipt.ts';
import { budgetDemand, reasoningBudget } from '../accounts/reasoning-budget.ts';
import {
  knowsAllProviders,
  type RequestedTrust,
  requestedTrust,
  requireTrust,
  TRUST_METADATA,
  trustOf,
} from '../accounts/trusted-providers.ts';
import type { Env } from '../env.ts';
import { coldModelFor, coldModels } from '../factory/cold-models.ts';
import type { HttpRequest } from '../http/http-request.ts';
import type { Background } from '../platform/object-context.ts';
import { longestWait } from '../queue/wait-for-turn.ts';
import { isolateSnapshot, type RegistrySnapshot } from '../registry/isolate-snapshot.ts';
import { type FallbackChain, fallbackChain, hasOwnLimits } from '../routing/aliases-and-fallbacks.ts';
import { modelLoader } from '../routing/model-loader.ts';
import { PolicySelector } from '../routing/policy-selector.ts';
import { kindAtArrival } from '../routing/predict-request-kind.ts';

/** The caller of a request, and the settings at the time when the request began. */
export interface ModelCaller {
  readonly account: Account;
  readonly settings: GatewaySettings;
  /** True if the request's usage is counted but not recorded. */
  untracked: boolean;
}

const policies = new PolicySelector();

type RoutingCriteria = Pick<RoutingQuery, 'request' | 'fallbacks' | 'demand' | 'policyFor'>;

/** @throws ApiError 400 invalid_requirement */
function routingCriteria(
  request: HttpRequest,
  parsed: ParsedRequest,
  { model, fallbacks }: FallbackChain,
  { account, settings, region }: Pick<ModelCaller, 'account' | 'settings'> & Pick<RouteInput, 'region'>,
): RoutingCriteria {
  const header = (name: string) => request.headers.get(name);
  const given = routedRequest(header, parsed, model, account.projectId ?? `key ${account.keyId}`);
  const { first_token_ms: firstTokenMs } = settingsOf(settings, model);
  const plain = given.firstTokenMs === undefined && parsed.streaming ? { ...given, firstTokenMs } : given;
  const kind = kindAtArrival(settings, plain, request, account.keyId);
  const asked = kind === undefined ? plain : { ...plain, kind };
  const policyFor = (served: string) => policies.for(settings, account, asked, served, { region });
  return { request: asked, fallbacks, demand: readRequirements(header, parsed.metadata), policyFor };
}

/** A pipeline's route with the additional members that the gateway's attempts need. */
export interface GatewayRoute extends Route {
  readonly view: RegistrySnapshot;
  /** Maximum reasoning tokens of the response, if the engine supports such a limit; undefined: no limit. */
  readonly reasoningBudget: number | undefined;
}

interface Context {
  env: Env;
  ctx: Background;
}

/** @throws ApiError 400, 403, 404, or the promise rejects with it */
export function resolveModelRoute(
  request: HttpRequest,
  caller: ModelCaller,
  parsed: ParsedRequest,
  { env, ctx }: Context,
): GatewayRoute | Promise<GatewayRoute> {
  const { account, settings } = caller;
  const chain = fallbackChain(account, settings, parsed, Date.now());
  const asked: RouteInput = {
    settings,
    chain,
    reasoningBudget: reasoningBudget(request, account, parsed.unseen),
    startWaitMs: readStartWait(request.headers.get('x-otela-wait')),
    trust: requestedTrust(request, parsed.metadata[TRUST_METADATA]),
    region: env.GATEWAY_REGION,
  };
  const models = [chain.model, ...chain.fallbacks];
  // If no node of the cached view serves the model or a fallback, or if the view lacks a provider, the view is read
  // again once: a node or provider may just have joined.
  const enough = (view: RegistrySnapshot) => servesAny(view.nodes, models) && knowsAllProviders(view, asked.trust);
  const view = isolateSnapshot.get(env, ctx, Date.now(), enough);
  const routed = (found: RegistrySnapshot) =>
    withCold(routeIn(found, request, caller, parsed, asked), caller, { env, ctx });
  return view instanceof Promise ? view.then(routed) : routed(view);
}

/** Adds models that can be started or loaded, if no node serves a model of the route. */
function withCold(
  route: GatewayRoute,
  { account }: ModelCaller,
  context: Context,
): GatewayRoute | Promise<GatewayRoute> {
  const { nodes, trust, view } = route;
  const models = [route.request.model, ...route.fallbacks];
  if (models.some((model) => isServedTo(nodes, model, trust))) return route;
  const dormant = (model: string) => dormantModel(nodes.model(model), trust, route.demand.require, Date.now());
  const cold: ColdModels = {
    find: (model) => {
      if (isServedTo(nodes, model, trust)) return undefined;
      const { state, readyInMs } = dormant(model) ?? {};
      if (state !== undefined) return { model, state, readyInMs, mayStart: true };
      return coldModelFor(model, coldModels.all(Date.now(), view.settings), trust, account);
    },
    ask: (model) => {
      const node = dormant(model);
      if (node === undefined) coldModels.ask(model, context, Date.now());
      else modelLoader.ask(model, node, context, Date.now());
    },
  };
  if (models.some((model) => dormant(model) !== undefined)) return { ...route, cold };
  const refreshed = coldModels.refresh(context, Date.now(), models);
  return refreshed === undefined ? { ...route, cold } : refreshed.then(() => ({ ...route, cold }));
}

function isServedTo(nodes: Pick<NodeIndex, 'model'>, model: string, trust: Trust): boolean {
  return candidatePool(nodes.model(model), trust, NO_REQUIREMENTS, 0).ready.length > 0;
}

interface RouteInput {
  settings: GatewaySettings;
  /** The fallback chain under these settings. */
  chain: FallbackChain;
  trust: RequestedTrust;
  reasoningBudget: number | undefined;
  startWaitMs: number | undefined;
  /** Region of this gateway; undefined or empty: it has none. */
  region: string | undefined;
}

function routeIn(
  view: RegistrySnapshot,
  request: HttpRequest,
  { account, untracked }: ModelCaller,
  parsed: ParsedRequest,
  asked: RouteInput,
): GatewayRoute {
  const { settings, nodes } = view;
  // If the view has newer settings than the request began with, the fallback chain is resolved again.
  const chain = settings === asked.settings ? asked.chain : fallbackChain(account, settings, parsed, Date.now());
  const opaque = parsed.unseen && parsed.sealed === undefined;
  if (opaque) requireOpenNodes(view, account, chain.model);
  const trust = trustOf(account, asked.trust, settings);
  const own = routingCriteria(request, parsed, chain, { account, settings, region: asked.region });
  const limited = asked.reasoningBudget !== undefined && generates(request);
  const demand = limited ? budgetDemand(own.demand, parsed.budgetAt !== undefined) : own.demand;
  // `kind` is a kind of the requested model. A fallback model has other kinds, so its receipt contains none.
  const receiptFacts = (model: string) => ({
    sampling: parsed.sampling,
    kind: model === own.request.model ? own.request.kind : undefined,
  });
  return {
    ...own,
    demand,
    ...(opaque && {
      only: ({ session }: Pick<Candidate, 'session'>) => isOpenNode(view, account, chain.model, session),
    }),
    view,
    nodes,
    trust,
    requireTrust: () => requireTrust(view, asked.trust, trust),
    expects: (model) => Object.hasOwn(settings.models, model) || catalogueEntryOf(settings, model).always_on === true,
    headers: { ...lifecycleHeaders(settings, parsed.model), ...lifecycleHeaders(settings, chain.model) },
    retriesMax: settingsOf(settings, chain.model).max_retries ?? settings.retries.maxRetries,
    retryShare: settings.retries.retryShare,
    timeoutsFor: (model) => timeoutsOf(settings, model),
    receiptFor: (model) => receiptOf(account.seal, model, untracked, receiptFacts(model)),
    unpaidReceipt: (model) => receiptOf('', model, true),
    waitMs: longestWait(settings.queue, parsed.streaming),
    restartGraceMs: Math.max(settings.queue.unary_ms, settings.queue.stream_ms),
    startWaitMs: asked.startWaitMs ?? account.startWaitMs ?? settingsOf(settings, chain.model).start_wait_ms,
    resumes: account.resumes,
    reasoningBudget: asked.reasoningBudget,
  };
}

function generates({ method, url }: HttpRequest): boolean {
  const endpoint = findEndpoint(method, new URL(url).pathname);
  return endpoint !== undefined && 'generates' in endpoint && endpoint.generates;
}

/**
 * For a body that the gateway does not parse. Refuses the request if a node of the model also serves a model that the
 * account may not use, or for which the account has separate limits: the body could name such a model.
 * @throws ApiError 403 model_not_allowed
 */
function requireOpenNodes({ nodes, settings }: RegistrySnapshot, account: Account, model: string): void {
  const all = nodes.model(model)?.ready ?? [];
  if (all.every(({ models }) => models.every(({ id }) => mayBeNamed(settings, account, model, id)))) return;
  const message = `Nodes of '${quoteForMessage(model)}' also serve models that you may not use or that have their own limits, so the gateway must read the body: omit x-otela-model.`;
  throw new ApiError('model_not_allowed', message, { param: 'x-otela-model' });
}

/**
 * Repeats the check of `requireOpenNodes` for one candidate, because nodes join while a request waits, and because
 * suspected nodes are tried if there are no other nodes.
 */
function isOpenNode({ nodes, settings }: RegistrySnapshot, account: Account, model: string, session: string): boolean {
  return nodes.get(session)?.models.every(({ id }) => mayBeNamed(settings, account, model, id)) ?? false;
}

function mayBeNamed(settings: GatewaySettings, account: Account, model: string, other: string): boolean {
  return other === model || (hasAccess(settings, account, other) && !hasOwnLimits(account, other));
}

export function servesAny(nodes: Pick<NodeIndex, 'model'>, models: readonly string[]): boolean {
  return models.some((model) => isServing(nodes.model(model)));
}

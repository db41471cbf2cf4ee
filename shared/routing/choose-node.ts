import {
  type Candidate,
  type CandidatePool,
  candidatePool,
  changedAt,
  type NodeRequirements,
  withoutAvoided,
  withoutTried,
} from './candidates.ts';
import { describeOffers } from './describe-offers.ts';
import { beginsWithin } from './first-token-times.ts';
import type { LiveNode } from './live-nodes.ts';
import type { NodeIndex } from './node-index.ts';
import { preferredTier } from './policies/tier-preference.ts';
import type { RequestOutcome } from './retry-policy.ts';
import type { Policy, RoutedRequest } from './routing-policy.ts';
import { isTrusted, type Trust } from './trusted-providers.ts';

/** The input of the choice before each attempt. */
export interface RoutingQuery {
  request: RoutedRequest;
  /** Models to try, in this order, if no node serves the requested model. */
  fallbacks: readonly string[];
  trust: Trust;
  demand: NodeRequirements;
  policyFor(model: string): Policy;
  /**
   * Returns true for the candidates that may be chosen. It restricts the choice further than trust and requirements. If
   * absent, all may be chosen.
   */
  only?: ((candidate: Candidate) => boolean) | undefined;
  /** Sessions that are avoided while others are available. If absent, no node is avoided. */
  avoided?: ReadonlySet<string> | undefined;
  /**
   * Returns those of the candidates that may get the request now. If it returns none, the request waits. If absent, all
   * may get it.
   */
  among?: ((candidates: readonly Candidate[]) => readonly Candidate[]) | undefined;
  /**
   * Milliseconds after the loss of the path to a node during which the node is still chosen as a last resort, because
   * the path may come back.
   */
  lostLatelyMs: number;
  /** The current time, in milliseconds since 1970. */
  now: number;
  random(): number;
}

export interface NodeChoice {
  node: Candidate;
  /** The requested model, or the first fallback that a node serves. */
  model: string;
  /** The request as the policy sees it, with `model` as its model. */
  request: RoutedRequest;
  policy: Policy;
  live: LiveNode;
  /** True if the request's tier preferred this node to others. */
  byTier: boolean;
  /** True if another node could get the request instead. */
  others: boolean;
}

/**
 * Chooses the node for the next attempt. A node that trust or requirements exclude is never chosen, neither by a policy
 * nor as a last resort.
 *
 * Order: preferred healthy nodes, other healthy nodes, avoided nodes, nodes with a path that was lost a moment ago. A
 * fallback model comes after all of these. A request with a time for its first token first gets this order of the nodes
 * that meet it.
 */
export function chooseNode(
  index: NodeIndex,
  question: RoutingQuery,
  tried: ReadonlySet<string>,
): NodeChoice | undefined {
  index.live.expire(question.now);
  return chooseFast(index, question, tried) ?? chooseInOrder(index, question, tried);
}

/**
 * The choice among nodes with streams that begin within the request's time: first those of its model, then those of the
 * fallbacks. Undefined if the request has no such time, or no node meets it.
 */
function chooseFast(index: NodeIndex, question: RoutingQuery, tried: ReadonlySet<string>): NodeChoice | undefined {
  const { request, fallbacks, now, only } = question;
  const { firstTokenMs } = request;
  if (firstTokenMs === undefined) return undefined;
  const fast = (one: Candidate) => beginsWithin(index.live.of(one.session), firstTokenMs, now) && (only?.(one) ?? true);
  const choice = chooseInOrder(index, { ...question, only: fast }, tried);
  if (choice === undefined) return undefined;
  const rest = new Set([...tried, choice.node.session]);
  const others = [request.model, ...fallbacks].some((model) => isServed(index, question, model, rest));
  return { ...choice, others };
}

function chooseInOrder(index: NodeIndex, question: RoutingQuery, tried: ReadonlySet<string>): NodeChoice | undefined {
  const { request, fallbacks } = question;
  const first = chooseFor(index, question, request.model, tried);
  if (first !== undefined) {
    const others = first.others || fallbacks.some((model) => isServed(index, question, model, tried));
    return { ...first, others };
  }
  for (const [at, model] of fallbacks.entries()) {
    const found = chooseFor(index, question, model, tried);
    if (found === undefined) continue;
    const others = found.others || fallbacks.slice(at + 1).some((next) => isServed(index, question, next, tried));
    return { ...found, others };
  }
  return undefined;
}

function chooseFor(
  index: NodeIndex,
  question: RoutingQuery,
  model: string,
  tried: ReadonlySet<string>,
): NodeChoice | undefined {
  const { trust, demand, avoided, now, lostLatelyMs } = question;
  const pool = among(candidatePool(index.model(model), trust, demand, now), question.only);
  const ready = withoutTried(pool.ready, tried);
  const well = withoutAvoided(ready, avoided);
  const lists: (readonly Candidate[])[] = well.length > 0 ? [well] : [ready];
  if (pool.preferred !== pool.ready) lists.unshift(withoutAvoided(withoutTried(pool.preferred, tried), avoided));
  if (ready.length === 0) {
    lists.push(withoutTried(pool.suspected, tried).filter((candidate) => now - changedAt(candidate) < lostLatelyMs));
  }
  const policy = question.policyFor(model);
  // A fallback gets no request kind, because kinds belong to one model.
  const request = model === question.request.model ? question.request : { ...question.request, model, kind: undefined };
  for (const list of lists) {
    const candidates = question.among?.(list) ?? list;
    const preferred = policy.prefersTiers === true ? preferredTier(candidates, request, now) : candidates;
    const node = policy.pick(preferred, request, question.random);
    if (node === undefined) continue;
    const others = Math.max(ready.length, candidates.length) > 1;
    const byTier = preferred.length < candidates.length;
    return { node, model, request, policy, live: index.live.of(node.session), byTier, others };
  }
  return undefined;
}

function among(pool: CandidatePool, only: RoutingQuery['only']): CandidatePool {
  if (only === undefined) return pool;
  const ready = pool.ready.filter(only);
  const preferred = pool.preferred === pool.ready ? ready : pool.preferred.filter(only);
  return { ready, preferred, suspected: pool.suspected.filter(only) };
}

/** Records that the request is sent. Call `requestEnded` exactly once for each call. */
export function requestStarted({ node, request, policy, live }: NodeChoice): void {
  live.inFlight++;
  policy.onRequestStart(node, request);
}

export function requestEnded({ node, request, policy, live }: NodeChoice, ending: RequestOutcome): void {
  live.inFlight--;
  policy.onRequestEnd(node, request, ending);
}

function isServed(index: NodeIndex, { trust, demand, now }: RoutingQuery, model: string, tried: ReadonlySet<string>) {
  return withoutTried(candidatePool(index.model(model), trust, demand, now).ready, tried).length > 0;
}

/**
 * Explains why no node can take the request. For each model the text says what the trusted nodes that serve it offer
 * instead. Undefined if one of these nodes meets the requirements, or if no trusted node serves any of the models.
 */
export function unmetRequirements(index: NodeIndex, question: RoutingQuery): string | undefined {
  const { request, fallbacks, trust, demand, now } = question;
  if (demand.require.length === 0) return undefined;
  const instead: string[] = [];
  for (const model of [request.model, ...fallbacks]) {
    const met = candidatePool(index.model(model), trust, demand, now);
    if (met.ready.length + met.suspected.length > 0) return undefined;
    const { ready = [], suspected = [] } = index.model(model) ?? {};
    const may = [...ready, ...suspected].filter((entry) => isTrusted(trust, entry));
    if (may.length > 0) instead.push(`'${model}' is served ${describeOffers(may, demand.require, model, now)}`);
  }
  return instead.length === 0 ? undefined : instead.join('; ');
}

import { type Candidate, changedAt, type Demand, poolFor, untried } from './candidates.ts';
import type { NodeIndex } from './nodes.ts';
import type { Policy, RoutedRequest } from './policy.ts';
import { satisfies } from './requirements.ts';
import { isTrusted, type Trust } from './trust.ts';

/** What is asked before each attempt. */
export interface Question {
  request: RoutedRequest;
  /** Models to be tried when nobody serves the one before. */
  fallbacks: readonly string[];
  trust: Trust;
  demand: Demand;
  policyFor(model: string): Policy;
  /** Sessions that are passed over while there are others; undefined: none. */
  isAvoided: ((candidate: Candidate) => boolean) | undefined;
  /** A path that was lost so lately may be coming back: its node is the last resort. */
  lostLatelyMs: number;
  /** Milliseconds since the epoch. */
  now: number;
  random(): number;
}

export interface Choice {
  node: Candidate;
  /** What it is asked for: the request's model, or the first of its fallbacks that anybody serves. */
  model: string;
  policy: Policy;
  /** Somebody else could be asked instead. */
  others: boolean;
}

/**
 * The node for the next attempt. Whom trust and requirements leave out is not there at all, for no policy and for no last resort:
 * first come those that are well, the preferred ones before the others, then those that are avoided, then those whose path was
 * lost a moment ago; all that before another model is thought of.
 */
export function choose(index: NodeIndex, question: Question, tried: ReadonlySet<string>): Choice | undefined {
  index.live.expire(question.now);
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
  question: Question,
  model: string,
  tried: ReadonlySet<string>,
): Choice | undefined {
  const { trust, demand, isAvoided, now } = question;
  const pool = poolFor(index.model(model), trust, demand, now);
  const ready = untried(pool.ready, tried);
  const well = (list: readonly Candidate[]) =>
    isAvoided === undefined ? list : list.filter((candidate) => !isAvoided(candidate));
  const lists = [
    () => (pool.preferred === pool.ready ? [] : well(untried(pool.preferred, tried))),
    () => well(ready),
    () => ready,
    () => untried(pool.suspected, tried).filter((candidate) => now - changedAt(candidate) < question.lostLatelyMs),
  ];
  const policy = question.policyFor(model);
  const request = model === question.request.model ? question.request : { ...question.request, model };
  for (const list of lists) {
    const candidates = list();
    if (candidates.length === 0) continue;
    const node = policy.pick(candidates, request, question.random);
    if (node !== undefined) return { node, model, policy, others: Math.max(ready.length, candidates.length) > 1 };
  }
  return undefined;
}

function isServed(index: NodeIndex, { trust, demand, now }: Question, model: string, tried: ReadonlySet<string>) {
  return untried(poolFor(index.model(model), trust, demand, now).ready, tried).length > 0;
}

/** Nodes that may see the request serve its model, and none has what it requires. */
export function isUnmet(index: NodeIndex, { request, trust, demand, now }: Question): boolean {
  if (demand.require.length === 0) return false;
  const { ready = [], suspected = [] } = index.model(request.model) ?? {};
  const may = [...ready, ...suspected].filter((entry) => isTrusted(trust, entry));
  return may.length > 0 && !may.some((entry) => satisfies(entry, demand.require, request.model, now));
}

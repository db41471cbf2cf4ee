/**
 * Simulates layouts on requests of the forecast. Averages do not show that a long prompt delays the responses beside
 * it, and that latencies grow with the load. Deterministic: requests are drawn with a fixed seed.
 */
import { exponential, seededRandom } from '../simulator/random.ts';
import { SimulatedEngine } from '../simulator/simulated-engine.ts';
import { choose, type Dispatch, type ReadyReplica } from './dispatch.ts';
import {
  type FollowProblem,
  type ForecastDemand,
  type Layout,
  optionsOf,
  type ReplicaOption,
} from './follow-problem.ts';
import { demandShares, midDemand, transitionCost, unservedSeconds } from './transition-cost.ts';

/** Most requests of one simulation, and of all simulations of a decision. */
const REQUESTS_MAX = 20_000;
const REQUESTS_ALL = 200_000;
const SEED = 1;

interface Drawn {
  atS: number;
  kind: number;
  input: number;
  output: number;
}

/**
 * Request seconds by which each layout differs, in the simulation, from `transitionCost` without a change. A model
 * counts 0 if its replicas are equal in all layouts, and if one of them cannot be simulated: its rates are measured, or
 * it has no replica for a kind.
 */
export function simulatedDifferences(problem: FollowProblem, layouts: readonly Layout[]): number[] {
  const differences = layouts.map(() => 0);
  const most = Math.min(REQUESTS_MAX, REQUESTS_ALL / Math.max(1, problem.models.length * layouts.length));
  for (const demand of problem.models) {
    const own = differencesOf(problem, demand, layouts, most);
    for (const [i, one] of (own ?? []).entries()) differences[i] = (differences[i] ?? 0) + one;
  }
  return differences;
}

function differencesOf(
  problem: FollowProblem,
  demand: ForecastDemand,
  layouts: readonly Layout[],
  most: number,
): number[] | undefined {
  const own = optionsOf(problem, demand.model);
  const keyOf = (layout: Layout) => own.map((i) => layout[i] ?? 0).join();
  if (demand.examples === undefined || new Set(layouts.map(keyOf)).size < 2) return undefined;
  const expected = demand.mean.reduce((sum, _, step) => sum + total(midDemand(demand, step)), 0) * problem.slotS;
  if (!(expected > 0)) return undefined;
  // Each slot is shortened by the same factor, so that a mix that changes within the horizon is simulated, too.
  const share = Math.min(1, most / expected);
  const shortened = { ...problem, slotS: problem.slotS * share, models: [demand] };
  const contexts = own.flatMap((i) => problem.options[i]?.engine?.step.deployment.model.context || []);
  const drawn = draw(demand, shortened.slotS, Math.min(...contexts));
  const known = new Map<string, number>();
  const found: number[] = [];
  for (const layout of layouts) {
    // Without replicas all requests wait: averages say so.
    if (own.every((i) => (layout[i] ?? 0) === 0)) {
      found.push(0);
      continue;
    }
    const key = keyOf(layout);
    const seconds = known.get(key) ?? simulatedSeconds(problem, demand, layout, drawn);
    if (seconds === undefined) return undefined;
    known.set(key, seconds);
    const averages = transitionCost({ ...shortened, running: layout }, layout, undefined);
    found.push((seconds - averages) / share);
  }
  return found;
}

const total = (values: readonly number[]): number => values.reduce((sum, one) => sum + one, 0);

/**
 * Poisson arrivals of each kind with the rates of each slot, and lengths of its examples. An example may be longer than
 * the request that it was counted from, so prompts are cut to the longest one that an engine with this context takes.
 */
function draw(demand: ForecastDemand, slotS: number, context: number): Drawn[] {
  const drawn = demand.kinds.flatMap((_, kind) => {
    const random = seededRandom(SEED * 31 + kind);
    const examples = demand.examples?.[kind] ?? [];
    return demand.mean.flatMap((_rates, step) => {
      const rate = midDemand(demand, step)[kind] ?? 0;
      const slot: Drawn[] = [];
      if (!(rate > 0)) return slot;
      for (let atS = exponential(random, 1 / rate); atS < slotS; atS += exponential(random, 1 / rate)) {
        const { input, output } = examples[Math.floor(random() * examples.length)] ?? { input: 1, output: 1 };
        slot.push({
          atS: step * slotS + atS,
          kind,
          input: Math.max(1, Math.min(input, context - 1)),
          output: Math.max(1, output),
        });
      }
      return slot;
    });
  });
  return drawn.sort((a, b) => a.atS - b.atS);
}

interface SimulatedReplica extends ReadyReplica {
  engine: SimulatedEngine;
}

/**
 * Request seconds, as a mean of fourth powers times the number of requests: the goal is the tail. A request that its
 * replica refuses, because it can never fit, counts as averages count a request that no replica can serve. Undefined if
 * a replica cannot be simulated, or a kind has no replica.
 */
function simulatedSeconds(
  problem: FollowProblem,
  demand: ForecastDemand,
  layout: Layout,
  drawn: readonly Drawn[],
): number | undefined {
  const mean = demand.kinds.map((_, kind) =>
    total(demand.mean.map((_rates, step) => midDemand(demand, step)[kind] ?? 0)),
  );
  const { indexes, assignment } = demandShares(
    problem,
    demand,
    layout,
    mean.map((one) => one / Math.max(1, demand.mean.length)),
  );
  if (drawn.some(({ kind }) => !((assignment.served[kind] ?? 0) > 0))) return undefined;
  const dispatch: Dispatch = indexes.length < 2 ? { kind: 'least-loaded' } : { kind: 'flow', flow: assignment.flow };
  const refusedS = unservedSeconds(problem, demand);
  let powers = 0;
  const replicas: SimulatedReplica[] = [];
  for (const [group, i] of indexes.entries()) {
    const option = problem.options[i];
    if (option?.engine === undefined) return undefined;
    for (let n = 0; n < (layout[i] ?? 0); n++)
      replicas.push(
        replicaOf(option, option.engine, group, drawn, (kind, seconds) => {
          powers += (seconds ?? refusedS[kind] ?? 0) ** 4;
        }),
      );
  }
  for (const [request, { atS, kind, input, output }] of drawn.entries()) {
    for (const { engine } of replicas) if (engine.clock < atS) engine.run(atS);
    const chosen = choose(replicas, dispatch, kind, request);
    if (chosen === undefined) return undefined;
    chosen.workS += chosen.costS[kind] ?? 0;
    chosen.engine.push(request, atS, input, output);
  }
  for (const { engine } of replicas) engine.run(Number.POSITIVE_INFINITY);
  return drawn.length * (powers / Math.max(1, drawn.length)) ** (1 / 4);
}

/** `ended`: called with the seconds of each request; undefined: it was refused. */
function replicaOf(
  { rates }: ReplicaOption,
  { step, limits }: NonNullable<ReplicaOption['engine']>,
  group: number,
  drawn: readonly Drawn[],
  ended: (kind: number, seconds: number | undefined) => void,
): SimulatedReplica {
  const costS = rates.map((rate) => (rate > 0 ? 1 / rate : Number.POSITIVE_INFINITY));
  const engine = new SimulatedEngine(step, limits, (request, firstToken, end) => {
    const { atS = 0, kind = 0 } = drawn[request] ?? {};
    replica.workS = Math.max(0, replica.workS - (costS[kind] ?? 0));
    ended(kind, firstToken === undefined ? undefined : end - atS);
  });
  const replica: SimulatedReplica = { engine, group, workS: 0, costS };
  return replica;
}

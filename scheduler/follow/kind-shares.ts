/** The shares of a layout's nodes in each kind of request, as weights of sessions for `PUT /admin/routing/{model}`. */
import type { RequestKind } from '../../shared/routing/kinds/request-kind.ts';
import { fillOrWait } from '../assignment/demand-assignment.ts';
import type { Assignment } from '../assignment/types.ts';
import type { PlannerGateway } from '../live/planner-gateway.ts';
import { type FollowProblem, type ForecastDemand, optionsOf, placeText, TRACE_DEMAND } from './follow-problem.ts';

/** Maximum number of rules that a gateway accepts for one model, without the rule for nodes that join later. */
const RULES_MAX = 499;
/** New shares are sent only if one differs by more than this, because each change is a line of the audit log. */
const MOVED = 0.05;
/**
 * Weight of a node that joins before new shares are sent. The weight is close to zero, because one request of a kind
 * that does not suit the node keeps the node busy for long. It is above zero, so that the node gets all requests if no
 * known node is left.
 */
const NEW_NODE = 1e-4;
/** Shares fill replicas at most to this load, because requests queue above it. */
const FULL = 0.92;
/** Rates below this many requests/s count as zero. */
const NO_DEMAND = 1e-3;

interface KindRule {
  session?: string;
  kind?: string;
  weight: number;
}

export interface PublishedShares {
  kinds: readonly RequestKind[];
  weights: KindRule[];
}

/**
 * Returns undefined if no session serves the model. `serving[option]`: sessions that serve the model with this option.
 * `step`: the current slot's index in the forecast. `changeS`: seconds until a running change ends.
 */
export function kindShares(
  problem: FollowProblem,
  demand: ForecastDemand,
  kinds: readonly RequestKind[],
  serving: ReadonlyMap<number, readonly string[]>,
  step: number,
  changeS = Number.POSITIVE_INFINITY,
): PublishedShares | undefined {
  const indexes = optionsOf(problem, demand.model).filter((i) => (serving.get(i)?.length ?? 0) > 0);
  const sessions = indexes.reduce((sum, i) => sum + (serving.get(i)?.length ?? 0), 0);
  if (sessions === 0) return undefined;
  const assignment = assigned(
    problem,
    indexes,
    serving,
    expectedOf(demand, kinds, step),
    waitsOf(problem, demand, indexes, serving, step, changeS),
  );
  const rules = indexes.flatMap((option, g) =>
    (serving.get(option) ?? []).flatMap((session): KindRule[] =>
      kinds.map(({ name }, k) => {
        const served = assignment.served[k] ?? 0;
        const share = served > 0 ? (assignment.flow[g]?.[k] ?? 0) / served : 0;
        return { session, kind: name, weight: rounded(share / (serving.get(option)?.length ?? 1)) };
      }),
    ),
  );
  // The last rule applies to kinds that no replica can serve, to nodes that join later, and to sessions above the
  // gateway's maximum number of rules.
  const rest: KindRule = { weight: rules.length > RULES_MAX ? rounded(1 / sessions) : NEW_NODE };
  return { kinds, weights: [...rules.slice(0, RULES_MAX), rest] };
}

/**
 * Expected requests/s by kind. If no request is expected, a tiny rate sends the first ones to the replicas with the
 * lowest latency.
 */
function expectedOf({ mean }: ForecastDemand, kinds: readonly RequestKind[], step: number): number[] {
  const typical = mean[step] ?? [];
  const all = typical.reduce((sum, one) => sum + one, 0);
  if (all < NO_DEMAND) return kinds.map(({ share }) => Math.max(share, TRACE_DEMAND) * NO_DEMAND);
  const trace = TRACE_DEMAND * all;
  return typical.map((rate) => Math.max(rate, trace));
}

/**
 * By kind: the mean wait, in seconds, of a request that waits until the quickest replicas have capacity. It is half of
 * the time for which the forecast exceeds their capacity. That time is at least one slot, and at most the remaining
 * time of a running change. During a short excess requests wait; during a long one they go to replicas with headroom.
 */
function waitsOf(
  { options, slotS }: FollowProblem,
  { mean, kinds }: ForecastDemand,
  indexes: readonly number[],
  serving: ReadonlyMap<number, readonly string[]>,
  step: number,
  changeS: number,
): number[] {
  return kinds.map((_, kind) => {
    const quickest = Math.min(...indexes.map((i) => options[i]?.latencyS[kind] ?? Number.POSITIVE_INFINITY));
    const capacity = indexes
      .filter((i) => (options[i]?.latencyS[kind] ?? Number.POSITIVE_INFINITY) <= quickest)
      .reduce((sum, i) => sum + (options[i]?.rates[kind] ?? 0) * (serving.get(i)?.length ?? 0), 0);
    const later = mean.slice(step);
    const fits = later.findIndex((rates) => (rates[kind] ?? 0) <= FULL * capacity);
    const excessS = slotS * Math.max(1, fits < 0 ? later.length : fits);
    return Math.max(slotS, Math.min(excessS, changeS)) / 2;
  });
}

function assigned(
  { options }: FollowProblem,
  indexes: readonly number[],
  serving: ReadonlyMap<number, readonly string[]>,
  demand: readonly number[],
  wait: readonly number[],
): Assignment {
  const groups = indexes.flatMap((i) => options[i] ?? []);
  const problem = {
    rates: groups.map(({ rates }) => rates),
    replicas: indexes.map((i) => serving.get(i)?.length ?? 0),
    demand,
  };
  const cost = groups.map(({ latencyS }) => latencyS.map((s) => (Number.isFinite(s) ? s : 1e4)));
  return fillOrWait(problem, { cost, wait, full: FULL });
}

const rounded = (weight: number): number => Math.round(weight * 1e4) / 1e4;

/** Sends shares if they differ enough from the gateway's. */
export class SharePublisher {
  readonly #gateway: PlannerGateway;
  readonly #sent = new Map<string, PublishedShares>();

  constructor(gateway: PlannerGateway) {
    this.#gateway = gateway;
  }

  /**
   * Returns true if the shares were worth sending.
   *
   * @throws SchedulerError `gateway`
   */
  async publish(model: string, shares: PublishedShares, publish: boolean): Promise<boolean> {
    const before = this.#sent.get(model);
    if (before !== undefined && !differ(before, shares)) return false;
    if (publish) await this.#gateway.put(`/admin/routing/${encodeURIComponent(model)}`, shares);
    this.#sent.set(model, shares);
    return true;
  }
}

function differ(a: PublishedShares, b: PublishedShares): boolean {
  // The gateway drops a model's shares when its kinds are published, so changed kinds need the shares again.
  if (JSON.stringify(a.kinds) !== JSON.stringify(b.kinds)) return true;
  if (a.weights.length !== b.weights.length) return true;
  return a.weights.some((rule, i) => {
    const other = b.weights[i];
    return (
      rule.session !== other?.session ||
      rule.kind !== other?.kind ||
      Math.abs(rule.weight - (other?.weight ?? 0)) > MOVED
    );
  });
}

/** Formats shares for people: `short prompt: 70 % TP 2, 30 % TP 1 × PP 2`. */
export function sharesText(
  problem: Pick<FollowProblem, 'options'>,
  { kinds, weights }: PublishedShares,
  serving: ReadonlyMap<number, readonly string[]>,
): string {
  return kinds
    .map(({ name }) => {
      const parts = [...serving].flatMap(([i, sessions]) => {
        const weight = weights.reduce(
          (sum, rule) => sum + (rule.kind === name && sessions.includes(rule.session ?? '') ? rule.weight : 0),
          0,
        );
        const place = problem.options[i]?.place;
        return weight > 0.005 && place !== undefined
          ? [`${Math.round(100 * weight)} % ${placeText(problem, place)}`]
          : [];
      });
      return `${name}: ${parts.join(', ') || 'any node'}`;
    })
    .join('; ');
}

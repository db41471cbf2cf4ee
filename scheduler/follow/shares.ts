/** A layout's shares by kind, as weights of sessions: `PUT /admin/routing/{model}`. */
import type { RequestKind } from '../../shared/routing/kinds/kind.ts';
import type { Gateway } from '../live/gateway.ts';
import { sharesOf } from './course.ts';
import type { FollowProblem, ModelDemand } from './problem.ts';

/** Rules that a gateway takes for one model, less the one for nodes that come later. */
const RULES_MAX = 499;
/** Shares that moved less are not sent again: each change is a line of the audit log. */
const MOVED = 0.05;
/** A node that is not known yet gets this part of the mean until its shares are sent. */
const NEW_NODE = 0.25;

export interface KindRule {
  session?: string;
  kind?: string;
  weight: number;
}

export interface PublishedShares {
  kinds: readonly RequestKind[];
  weights: KindRule[];
}

/** `serving[option]`: sessions that serve the model so. Undefined where none does. */
export function kindShares(
  problem: FollowProblem,
  demand: ModelDemand,
  kinds: readonly RequestKind[],
  serving: ReadonlyMap<number, readonly string[]>,
  typical: readonly number[],
): PublishedShares | undefined {
  const layout = problem.options.map((_, i) => serving.get(i)?.length ?? 0);
  const sessions = layout.reduce((sum, one) => sum + one, 0);
  if (sessions === 0) return undefined;
  // Where no request is expected, the first ones still go where they are answered soonest.
  const expected = typical.some((rate) => rate > 0) ? typical : kinds.map(({ share }) => Math.max(share, 1e-3) * 1e-3);
  const { indexes, assignment } = sharesOf(problem, demand, layout, expected);
  const rules = indexes.flatMap((option, g) =>
    (serving.get(option) ?? []).flatMap((session): KindRule[] =>
      kinds.map(({ name }, k) => {
        const served = assignment.served[k] ?? 0;
        const share = served > 0 ? (assignment.flow[g]?.[k] ?? 0) / served : 0;
        return { session, kind: name, weight: rounded(share / (layout[option] ?? 1)) };
      }),
    ),
  );
  // A kind that no replica can hold, and sessions beyond what a gateway takes, go by the last rule.
  const rest = { weight: rounded((rules.length > RULES_MAX ? 1 : NEW_NODE) / sessions) };
  return { kinds, weights: [...rules.slice(0, RULES_MAX), rest] };
}

const rounded = (weight: number): number => Math.round(weight * 1e4) / 1e4;

/** Sends shares where they differ enough from what the gateway has. */
export class SharePublisher {
  readonly #gateway: Gateway;
  readonly #sent = new Map<string, PublishedShares>();

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
  }

  /** Whether they were worth sending. @throws SchedulerError gateway */
  async publish(model: string, shares: PublishedShares, apply: boolean): Promise<boolean> {
    const before = this.#sent.get(model);
    if (before !== undefined && !differ(before, shares)) return false;
    if (apply) await this.#gateway.put(`/admin/routing/${encodeURIComponent(model)}`, shares);
    this.#sent.set(model, shares);
    return true;
  }
}

function differ(a: PublishedShares, b: PublishedShares): boolean {
  // Kinds are published without shares: whatever of them changed, the gateway has lost the shares.
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

/** `short prompt: 70 % TP 2, 30 % TP 1 × PP 2`: for people. */
export function sharesText(
  { options }: Pick<FollowProblem, 'options'>,
  { kinds, weights }: PublishedShares,
  serving: ReadonlyMap<number, readonly string[]>,
  textOf: (option: FollowProblem['options'][number]) => string,
): string {
  return kinds
    .map(({ name }) => {
      const parts = [...serving].flatMap(([i, sessions]) => {
        const weight = weights.reduce(
          (sum, rule) => sum + (rule.kind === name && sessions.includes(rule.session ?? '') ? rule.weight : 0),
          0,
        );
        const option = options[i];
        return weight > 0.005 && option !== undefined ? [`${Math.round(100 * weight)} % ${textOf(option)}`] : [];
      });
      return `${name}: ${parts.join(', ') || 'any node'}`;
    })
    .join('; ');
}

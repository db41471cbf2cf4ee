import { fnv1a, mixBits } from '../../text/hash.ts';
import type { Candidate } from '../candidates.ts';
import { availableWeights, type ModelShares } from '../region-shares.ts';
import type { Policy, RoutedRequest } from '../routing-policy.ts';

/** Maximum number of models with a remembered sequence. */
const MODELS_MAX = 1_024;
/**
 * The golden ratio. As in `weighted.ts`, of any n consecutive turns each region gets its share, plus or minus a few
 * turns.
 */
const GOLDEN = (Math.sqrt(5) - 1) / 2;

/** Candidates by region. */
interface Group {
  names: readonly string[];
  members: readonly (readonly Candidate[])[];
  /** Running sums of the regions' weights, by the shares of a plan. */
  sums: WeakMap<ModelShares, Float64Array>;
}

/**
 * The shares of a plan choose the region, and another policy chooses the node within the region. Only regions with
 * candidates are chosen, and trust, requirements and residency have already excluded other nodes. A conversation keeps
 * its region while the shares allow it: the shares divide the range from 0 to 1 among the regions, and the hash of the
 * conversation's name is its position in this range.
 */
export class RegionShares {
  readonly #groups = new WeakMap<readonly Candidate[], Group>();
  readonly #walks = new Map<string, number>();
  readonly #wrapped = new WeakMap<ModelShares, Map<Policy, Policy>>();

  /**
   * Wraps `inner` so that it chooses within the region that `shares` gives. The wrapper is created once per policy and
   * shares, because policies cache by object.
   */
  wrap(inner: Policy, shares: ModelShares): Policy {
    let known = this.#wrapped.get(shares);
    if (known === undefined) {
      known = new Map();
      this.#wrapped.set(shares, known);
    }
    const before = known.get(inner);
    if (before !== undefined) return before;
    const policy: Policy = {
      name: inner.name,
      pick: (candidates, request, random) => this.#pick(inner, shares, candidates, request, random),
      onRequestStart: (...args) => inner.onRequestStart(...args),
      onRequestEnd: (...args) => inner.onRequestEnd(...args),
    };
    // The map has one entry per routing policy of the installation.
    known.set(inner, policy);
    return policy;
  }

  #pick(
    inner: Policy,
    shares: ModelShares,
    candidates: readonly Candidate[],
    request: RoutedRequest,
    random: () => number,
  ): Candidate | undefined {
    if (candidates.length === 0) return undefined;
    const { names, members, sums } = this.#grouped(candidates);
    let known = sums.get(shares);
    if (known === undefined) {
      known = runningSums(availableWeights(shares, names));
      sums.set(shares, known);
    }
    const total = known.at(-1) ?? 0;
    // The plan mentions no region that has candidates. The request is still sent to one of them.
    if (!(total > 0)) return inner.pick(candidates, request, random);
    const { session } = request;
    const at = session === undefined ? this.#pickFirst(request.model, random) : unitHash(session);
    const first = firstAbove(known, at * total);
    const node = inner.pick(members[first] ?? [], request, random);
    if (node === undefined) return inner.pick(candidates, request, random);
    // A conversation waits in its region, because its cache is there.
    if (session !== undefined || (node.load?.waiting ?? 0) === 0) return node;
    return this.#chooseOtherRegion(inner, shares, { names, members }, first, request, random) ?? node;
  }

  /**
   * Called if the chosen region has a queue. Chooses a node without a queue in another region of the plan, by the
   * shares that would apply if the chosen region had no node.
   */
  #chooseOtherRegion(
    inner: Policy,
    shares: ModelShares,
    { names, members }: Pick<Group, 'names' | 'members'>,
    full: number,
    request: RoutedRequest,
    random: () => number,
  ): Candidate | undefined {
    const others = names.filter((_, at) => at !== full);
    const sums = runningSums(availableWeights(shares, others));
    const total = sums.at(-1) ?? 0;
    if (!(total > 0)) return undefined;
    const at = firstAbove(sums, random() * total);
    const node = inner.pick(members[at < full ? at : at + 1] ?? [], request, random);
    return node !== undefined && (node.load?.waiting ?? 0) === 0 ? node : undefined;
  }

  #grouped(candidates: readonly Candidate[]): Group {
    const known = this.#groups.get(candidates);
    if (known !== undefined) return known;
    const groups = Map.groupBy(candidates, ({ region }) => region ?? '');
    // Regions are sorted by name, so that conversations keep their region when the list of candidates is rebuilt.
    const sorted = [...groups].sort(([a], [b]) => (a < b ? -1 : 1));
    const group = {
      names: sorted.map(([name]) => name),
      members: sorted.map(([, members]) => members),
      sums: new WeakMap<ModelShares, Float64Array>(),
    };
    this.#groups.set(candidates, group);
    return group;
  }

  #pickFirst(model: string, random: () => number): number {
    const at = ((this.#walks.get(model) ?? random()) + GOLDEN) % 1;
    if (this.#walks.size >= MODELS_MAX && !this.#walks.has(model)) this.#walks.clear();
    this.#walks.set(model, at);
    return at;
  }
}

function runningSums(weights: Float64Array): Float64Array {
  let total = 0;
  return weights.map((weight) => (total += weight));
}

/** Index of the first sum above `value`. A linear search, because regions are few. */
function firstAbove(sums: Float64Array, value: number): number {
  const at = sums.findIndex((sum) => sum > value);
  return at < 0 ? sums.length - 1 : at;
}

/** A hash in [0, 1). */
function unitHash(text: string): number {
  return mixBits(fnv1a(text)) / 2 ** 32;
}

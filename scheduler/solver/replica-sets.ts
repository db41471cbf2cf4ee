import type { Segment } from './latency-curve.ts';

/** One way to run replicas of one model. */
export interface Item {
  option: number;
  /** Cost of one replica, including the shadow prices of its GPUs; never negative. */
  price: number;
  /** Maximum requests/s of one replica. */
  rate: number;
  /** Segments of `rate * latency` up to `rate`; empty if latency does not count. */
  segments: readonly Segment[];
  /** Maximum number of replicas. */
  most: number;
}

/** Replicas of one model. */
interface Configuration {
  /** Number of replicas of each item. */
  counts: number[];
  /** Sum of the replicas' prices, plus waiting if latency counts. */
  value: number;
  /** Proven lower bound on the value of every configuration. */
  bound: number;
}

/**
 * Maximum number of nodes of one search tree before the next tolerance applies, which makes the search less exact and
 * its bound lower.
 */
const SEARCH_NODES_MAX = 4_000;
/**
 * A branch that could improve the best value by less than this share is not searched. Each time the nodes are used up,
 * the next share applies.
 */
const TOLERANCES = [0.001, 0.005, 0.02, 0.08, 0.5];

/** Counts the nodes of a search and raises its tolerance as the number grows. */
class Effort {
  #looks = 0;
  #level = 0;
  get tolerance(): number {
    return TOLERANCES[this.#level] ?? 1;
  }
  look(): void {
    if (++this.#looks % SEARCH_NODES_MAX === 0 && this.#level < TOLERANCES.length) this.#level++;
  }
}

/**
 * Finds the cheapest replicas that can serve `rate`: a covering knapsack, by branch and bound. Undefined if no replicas
 * can.
 */
export function cheapest(items: readonly Item[], rate: number): Configuration | undefined {
  const order = items
    .map((item, at) => ({ at, price: item.price, rate: item.rate, most: item.most, ratio: item.price / item.rate }))
    .filter((item) => item.rate > 0)
    .sort((a, b) => a.ratio - b.ratio);
  const counts = items.map(() => 0);
  if (rate <= 0) return { counts, value: 0, bound: 0 };
  if (order.length === 0) return undefined;
  const effort = new Effort();
  const enough = rate * 1e-7;
  let best = Number.POSITIVE_INFINITY;
  let chosen: number[] | undefined;
  const tried = [...counts];
  const look = (i: number, left: number, cost: number): void => {
    effort.look();
    if (left <= enough) {
      if (cost < best) [best, chosen] = [cost, [...tried]];
      return;
    }
    const item = order[i];
    if (item === undefined) return;
    const next = order[i + 1]?.ratio ?? Number.POSITIVE_INFINITY;
    for (let n = Math.min(item.most, Math.ceil(left / item.rate - 1e-7)); n >= 0; n--) {
      const rest = left - n * item.rate;
      const now = cost + n * item.price;
      // The rest would be served by later items, which cost at least as much per request/s. So fewer replicas of this
      // item only raise the cost.
      if (now + (rest <= enough ? 0 : rest * next) >= best * (1 - effort.tolerance)) {
        if (best < Number.POSITIVE_INFINITY && rest > enough) break;
        if (rest > enough) return;
        continue;
      }
      tried[item.at] = n;
      look(i + 1, rest, now);
      tried[item.at] = 0;
    }
  };
  look(0, rate, 0);
  return chosen === undefined ? undefined : { counts: chosen, value: best, bound: best * (1 - effort.tolerance) };
}

interface Offer extends Item {
  at: number;
  /** Lowest cost per request/s of one replica, over its loads. */
  ratio: number;
  /** Load at which the cost per request/s is lowest, requests/s. */
  bestRate: number;
}

/**
 * Finds the replicas that serve `rate` with the lowest sum of price and waiting, by branch and bound. Existing replicas
 * with the curve `given` serve together with them. Undefined if no number of replicas can serve the rate.
 */
export function quickest(
  items: readonly Item[],
  rate: number,
  given: readonly Segment[] = [],
): Configuration | undefined {
  const order = items
    .map((item, at): Offer => ({ ...item, at, ...bestLoad(item) }))
    .filter((item) => item.rate > 0)
    .sort((a, b) => a.ratio - b.ratio);
  const tried = items.map(() => 0);
  if (rate <= 0) return { counts: tried, value: 0, bound: 0 };
  const effort = new Effort();
  let best = Number.POSITIVE_INFINITY;
  let chosen = tried;
  const look = (i: number, curve: readonly Segment[], cost: number): boolean => {
    effort.look();
    const here = cost + served(curve, rate, Number.POSITIVE_INFINITY);
    if (here < best) [best, chosen] = [here, [...tried]];
    const item = order[i];
    if (item === undefined) return true;
    if (cost + served(curve, rate, item.ratio) >= best * (1 - effort.tolerance)) return false;
    const next = order[i + 1]?.ratio ?? Number.POSITIVE_INFINITY;
    const open = rate - room(curve, item.ratio);
    const middle = Math.min(item.most, Math.max(0, Math.round(open / item.bestRate)));
    const go = (n: number): boolean => {
      const joined = joinedWith(curve, item, n);
      const now = cost + n * item.price;
      // The cost is convex in n: if it is too high for n replicas of this item, it is even higher for more replicas.
      if (now + served(joined, rate, next) >= best * (1 - effort.tolerance)) return false;
      tried[item.at] = n;
      look(i + 1, joined, now);
      tried[item.at] = 0;
      return true;
    };
    for (let n = middle; n >= 0 && (go(n) || n === middle); n--);
    for (let n = middle + 1; n <= item.most && go(n); n++);
    return true;
  };
  look(0, given, 0);
  // A request without a replica makes the value infinite.
  return best === Number.POSITIVE_INFINITY
    ? undefined
    : { counts: chosen, value: best, bound: best * (1 - effort.tolerance) };
}

function bestLoad({ price, segments: parts }: Item): { ratio: number; bestRate: number } {
  let [rate, cost, ratio, bestRate] = [0, price, Number.POSITIVE_INFINITY, 1];
  for (const { width, slope } of parts) {
    rate += width;
    cost += width * slope;
    if (cost / rate < ratio) [ratio, bestRate] = [cost / rate, rate];
  }
  return { ratio, bestRate };
}

/** Returns the curve together with `n` replicas of an item, as segments in ascending order of slope. */
export function joinedWith(curve: readonly Segment[], item: Pick<Item, 'segments'>, n: number): readonly Segment[] {
  if (n === 0) return curve;
  const joined: Segment[] = [];
  let i = 0;
  for (const { width, slope } of item.segments) {
    for (let piece = curve[i]; piece !== undefined && piece.slope <= slope; piece = curve[++i]) joined.push(piece);
    joined.push({ width: width * n, slope });
  }
  for (let piece = curve[i]; piece !== undefined; piece = curve[++i]) joined.push(piece);
  return joined;
}

/**
 * Waiting if `rate` is served on those segments of a curve with a slope below `slope`. Each request/s beyond them adds
 * `slope`.
 */
function served(curve: readonly Segment[], rate: number, slope: number): number {
  let [left, cost] = [rate, 0];
  for (const piece of curve) {
    if (piece.slope >= slope || left <= 0) break;
    const here = Math.min(left, piece.width);
    cost += here * piece.slope;
    left -= here;
  }
  return left > rate * 1e-7 ? cost + left * slope : cost;
}

/** Requests/s on the segments of a curve with a slope below `slope`. */
function room(curve: readonly Segment[], slope: number): number {
  let sum = 0;
  for (const piece of curve) {
    if (piece.slope >= slope) break;
    sum += piece.width;
  }
  return sum;
}

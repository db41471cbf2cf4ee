/** Divides the requests of one model among regions: a quadratic program with a single sum, solved by bisection. */

export interface DivisionProblem {
  /** Requests of the slot. */
  requests: number;
  /** Seconds of one request, by region; infinite: the region cannot serve it. */
  cost: readonly number[];
  /** Seconds of service that a request needs, by region. */
  load: readonly number[];
  /** Seconds of service that the slot has, by region. */
  capacity: readonly number[];
  /** Shares of the previous slot, by region. */
  previous: readonly number[];
  /** Penalty of a change of shares, in seconds: `smoothness` times the squared change. */
  smoothness: number;
}

interface Division {
  /** Share of the requests, by region. The sum is 1, or 0 if no region can serve them. */
  shares: number[];
  /** Largest overload of a region, as a share of its capacity. */
  overload: number;
}

/** Cost of each second of service above a region's capacity, in seconds. It exceeds the cost of any detour. */
const OVERLOAD_COST = 30;
/** This number of bisections narrows the multiplier to the precision of a double. */
const STEPS = 100;

/**
 * min ⟨cost, x⟩ + smoothness · ‖x − previous‖² over shares x that sum to 1. Load above a region's capacity costs
 * `OVERLOAD_COST` a second. The Lagrange multiplier of the sum determines each share, and each share grows with the
 * multiplier. So bisection finds the multiplier for which the sum is 1.
 */
export function divideRequests(problem: DivisionProblem): Division {
  const { requests, cost, load, capacity, previous, smoothness } = problem;
  const regions = cost.flatMap((seconds, region) => (Number.isFinite(seconds) ? [region] : []));
  const scale = 1 / (2 * smoothness);
  const shareOf = (region: number, multiplier: number): number => {
    const [seconds, work] = [cost[region] ?? 0, load[region] ?? 0];
    const wanted = (previous[region] ?? 0) + (multiplier - seconds) * scale;
    const most = (capacity[region] ?? 0) / Math.max(requests * work, Number.MIN_VALUE);
    return wanted <= most ? Math.max(0, wanted) : Math.max(most, wanted - OVERLOAD_COST * work * scale);
  };
  const sumAt = (multiplier: number) => regions.reduce((sum, region) => sum + shareOf(region, multiplier), 0);
  const ends = regions.map((region) => {
    const least = (cost[region] ?? 0) - (previous[region] ?? 0) / scale;
    return { least, most: least + 1 / scale + OVERLOAD_COST * (load[region] ?? 0) };
  });
  let [low, high] = [Math.min(...ends.map(({ least }) => least)), Math.min(...ends.map(({ most }) => most))];
  for (let step = 0; step < STEPS; step++) {
    const middle = (low + high) / 2;
    if (sumAt(middle) < 1) low = middle;
    else high = middle;
  }
  const sum = regions.length === 0 ? 1 : sumAt(high);
  const shares = cost.map((_, region) => (regions.includes(region) ? shareOf(region, high) / sum : 0));
  const overloads = shares.map((share, region) => {
    const room = capacity[region] ?? 0;
    return (requests * share * (load[region] ?? 0) - room) / Math.max(room, 1);
  });
  return { shares, overload: Math.max(0, ...overloads) };
}

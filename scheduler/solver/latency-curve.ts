import type { Curve } from './planning-problem.ts';

/** A section of a curve of rate * latency. */
export interface Segment {
  /** Width of the section, requests/s. */
  width: number;
  /** Request seconds per second that each request/s adds. */
  slope: number;
}

/**
 * Latency is assumed linear in the load between two simulated loads, so `rate * latency` is curved there. It is
 * approximated by chords between points at these shares of the first simulated load above 0.
 */
const CHORDS_BELOW_FIRST = [0.15, 0.4, 0.7];

/**
 * The lower convex hull of `rate -> rate * latency`. It drops points that simulation noise put above the line between
 * their neighbors. The linear program is exact only for convex curves. `points` begin at rate 0, with the latency of a
 * request without load.
 */
export function hull(points: Curve): Curve {
  const kept: { rate: number; cost: number }[] = [{ rate: 0, cost: 0 }];
  for (const { rate, latencyS } of chords(points)) {
    if (!(rate > 0) || !Number.isFinite(latencyS)) continue;
    const next = { rate, cost: rate * latencyS };
    for (;;) {
      const [b, a] = [kept.at(-1), kept.at(-2)];
      if (a === undefined || b === undefined) break;
      if ((b.cost - a.cost) * (next.rate - a.rate) <= (next.cost - a.cost) * (b.rate - a.rate)) break;
      kept.pop();
    }
    kept.push(next);
  }
  const alone = kept[1] === undefined ? 0 : Math.min(points[0]?.latencyS ?? 0, kept[1].cost / kept[1].rate);
  return kept.map(({ rate, cost }) => ({ rate, latencyS: rate === 0 ? alone : cost / rate }));
}

/** Adds a few points below the first simulated load above 0, because `rate * latency` is curved there. */
function chords(points: Curve): Curve {
  const [alone, first] = points;
  if (alone === undefined || first === undefined || alone.rate !== 0 || !Number.isFinite(alone.latencyS)) return points;
  const between = CHORDS_BELOW_FIRST.map((share) => ({
    rate: share * first.rate,
    latencyS: alone.latencyS + share * (first.latencyS - alone.latencyS),
  }));
  return [...between, ...points.slice(1)];
}

/** Returns the segments of a curve, in ascending order of slope. */
export function segments(curve: Curve): Segment[] {
  const found: Segment[] = [];
  for (let i = 1; i < curve.length; i++) {
    const [a, b] = [curve[i - 1], curve[i]];
    if (a === undefined || b === undefined || b.rate <= a.rate) continue;
    const width = b.rate - a.rate;
    found.push({ width, slope: (b.rate * b.latencyS - a.rate * a.latencyS) / width });
  }
  return found;
}

/** The part of a curve up to `rate`. */
export function upTo(curve: Curve, rate: number): Curve {
  const kept = curve.filter((point) => point.rate < rate * (1 - 1e-9));
  const [a, b] = [kept.at(-1), curve[kept.length]];
  if (a === undefined || b === undefined) return kept;
  const share = (rate - a.rate) / (b.rate - a.rate);
  const cost = a.rate * a.latencyS + share * (b.rate * b.latencyS - a.rate * a.latencyS);
  return [...kept, { rate, latencyS: cost / rate }];
}

/** The highest rate at which the mean latency is at most `latencyS`; 0 if a request takes longer even without load. */
export function rateWithin(curve: Curve, latencyS: number): number {
  let rate = 0;
  for (let i = 1; i < curve.length; i++) {
    const [a, b] = [curve[i - 1], curve[i]];
    if (a === undefined || b === undefined) break;
    if (b.latencyS <= latencyS) {
      rate = b.rate;
      continue;
    }
    // Between two points, `rate * latency` is a line; it meets `latencyS * rate` once.
    const slope = (b.rate * b.latencyS - a.rate * a.latencyS) / (b.rate - a.rate);
    const meets = (slope * a.rate - a.rate * a.latencyS) / (slope - latencyS);
    return Math.max(rate, Math.min(b.rate, meets));
  }
  return rate;
}

/** Mean seconds of a request at `rate`. Beyond the last point of the curve, the seconds of the last point. */
export function latencyAt(curve: Curve, rate: number): number {
  if (rate <= 0) return curve[0]?.latencyS ?? 0;
  for (let i = 1; i < curve.length; i++) {
    const [a, b] = [curve[i - 1], curve[i]];
    if (a === undefined || b === undefined || rate > b.rate) continue;
    const share = (rate - a.rate) / (b.rate - a.rate);
    return (a.rate * a.latencyS + share * (b.rate * b.latencyS - a.rate * a.latencyS)) / rate;
  }
  return curve.at(-1)?.latencyS ?? 0;
}

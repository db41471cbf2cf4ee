import { type Random, seededRandom } from '../simulator/random.ts';

export type Point = readonly [number, number];

interface Clusters {
  centroids: Point[];
  /** Mean squared distance of the points to their centroids. */
  inertia: number;
}

/**
 * Maximum number of rounds of Lloyd's algorithm, which normally ends much earlier. With equal distances it could repeat
 * the same rounds forever.
 */
const ROUNDS_MAX = 60;
/** Number of starts from different seeds, because a single start of k-means++ sometimes ends in a poor optimum. */
const STARTS = 4;

/**
 * k-means (Lloyd 1982) in two dimensions, started by k-means++ (Arthur and Vassilvitskii 2007), or from `start`, which
 * keeps the numbering of an earlier fit. Returns fewer centroids than `k` if there are fewer distinct points. The fifty
 * lines replace ml-kmeans, which brings five packages of linear algebra.
 */
export function kMeans(points: readonly Point[], k: number, seed: number, start?: readonly Point[]): Clusters {
  if (start !== undefined) return lloyd(points, start);
  const random = seededRandom(seed);
  let best: Clusters | undefined;
  for (let i = 0; i < STARTS; i++) {
    const found = lloyd(points, plusPlus(points, k, random));
    if (best === undefined || found.inertia < best.inertia) best = found;
  }
  return best ?? { centroids: [], inertia: 0 };
}

export function nearestOf(centroids: readonly Point[], point: Point): { index: number; distance: number } {
  let [index, distance] = [0, Number.POSITIVE_INFINITY];
  for (const [i, centroid] of centroids.entries()) {
    const away = (centroid[0] - point[0]) ** 2 + (centroid[1] - point[1]) ** 2;
    if (away < distance) [index, distance] = [i, away];
  }
  return { index, distance };
}

function plusPlus(points: readonly Point[], k: number, random: Random): Point[] {
  const first = points[Math.floor(random() * points.length)];
  if (first === undefined) return [];
  const centroids = [first];
  const distances = points.map((point) => nearestOf(centroids, point).distance);
  while (centroids.length < k) {
    let left = random() * distances.reduce((sum, distance) => sum + distance, 0);
    if (left === 0) break;
    let at = 0;
    for (; at < points.length - 1; at++) {
      left -= distances[at] ?? 0;
      if (left < 0) break;
    }
    const next = points[at];
    if (next === undefined) break;
    centroids.push(next);
    for (const [i, point] of points.entries())
      distances[i] = Math.min(distances[i] ?? 0, nearestOf([next], point).distance);
  }
  return centroids;
}

function lloyd(points: readonly Point[], start: readonly Point[]): Clusters {
  let centroids = [...start];
  let inertia = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS_MAX; round++) {
    const sums = centroids.map(() => ({ x: 0, y: 0, n: 0 }));
    let total = 0;
    for (const point of points) {
      const { index, distance } = nearestOf(centroids, point);
      const sum = sums[index];
      if (sum === undefined) continue;
      sum.x += point[0];
      sum.y += point[1];
      sum.n++;
      total += distance;
    }
    // A centroid without points keeps its position, so that a kind without requests for some time keeps its number.
    centroids = centroids.map((old, i) => {
      const { x, y, n } = sums[i] ?? { x: 0, y: 0, n: 0 };
      return n === 0 ? old : [x / n, y / n];
    });
    const mean = points.length === 0 ? 0 : total / points.length;
    if (mean >= inertia * (1 - 1e-9)) break;
    inertia = mean;
  }
  return { centroids, inertia: Number.isFinite(inertia) ? inertia : 0 };
}

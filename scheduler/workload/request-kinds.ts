import { SchedulerError } from '../errors.ts';
import { moments } from '../simulator/length-distribution.ts';
import { seededRandom } from '../simulator/random.ts';
import { kMeans, nearestOf, type Point } from './k-means.ts';

/** Prompt and response length of one request, tokens. */
export interface KindLengths {
  input: number;
  output: number;
}

/** A group of similar requests, which need about the same time on a replica. */
export interface FittedKind {
  /** A name for people, such as `long prompt, short answer`; unique within a fit. */
  name: string;
  /** Geometric mean of the prompts' tokens: a coordinate of the centroid. */
  input: number;
  output: number;
  /** Mean and mean square of the tokens of the fitted requests. */
  moments: { input: { mean: number; square: number }; output: { mean: number; square: number } };
  /** Up to 400 of the fitted requests, from which simulations draw. */
  examples: readonly KindLengths[];
  /** Share of the fitted requests. */
  share: number;
}

interface KindOptions {
  /** Maximum number of kinds that are tried. */
  most: number;
  seed: number;
  /**
   * An earlier fit. The new fit keeps its numbering, and its number of kinds unless another number is clearly better.
   */
  previous?: readonly FittedKind[];
}

/** Maximum number of requests that a fit uses: more would move centroids by less than a hundredth. */
const POINTS_MAX = 4000;
/** A further kind is added only if it explains at least this share of the spread of all requests. */
const EXPLAINED_MIN = 0.05;
/**
 * The earlier number of kinds is kept unless one more kind would explain at least EXPLAINED_MIN times this factor, or
 * the last kind explains less than EXPLAINED_MIN divided by this factor.
 */
const KEEP_FACTOR = 2;

const pointOf = ({ input, output }: KindLengths): Point => [
  Math.log(Math.max(1, input)),
  Math.log(Math.max(1, output)),
];

/**
 * Fits kinds of requests by k-means on (log input, log output), as in OServe §4.1. The number of kinds is the lowest at
 * which a further kind would explain less than 5 % of the spread.
 *
 * @throws SchedulerError `bad_input` without requests
 */
export function fitKinds(requests: readonly KindLengths[], { most, seed, previous }: KindOptions): FittedKind[] {
  if (requests.length === 0)
    throw new SchedulerError('bad_input', 'there are no requests to which kinds could be fitted');
  const points = sample(requests, seed).map(pointOf);
  const before = previous?.map(pointOf);
  const fits = Array.from({ length: most }, (_, i) => kMeans(points, i + 1, seed, startFor(i + 1, before)));
  const spread = Math.max(fits[0]?.inertia ?? 0, 1e-12);
  const gain = (k: number) => ((fits[k - 1]?.inertia ?? 0) - (fits[k]?.inertia ?? 0)) / spread;
  let k = 1;
  while (k < most && gain(k) >= EXPLAINED_MIN) k++;
  if (before !== undefined && before.length >= 1 && before.length <= most) {
    const old = before.length;
    const grow = old < most && gain(old) >= EXPLAINED_MIN * KEEP_FACTOR;
    const shrink = old > 1 && gain(old - 1) < EXPLAINED_MIN / KEEP_FACTOR;
    if (!grow && !shrink) k = old;
  }
  return kindsOf(requests, numbered(fits[k - 1]?.centroids ?? [], before));
}

/** Finds the kind of a request with known lengths of prompt and response. */
export function kindClassifier(kinds: readonly FittedKind[]): (lengths: KindLengths) => number {
  const centroids = kinds.map(pointOf);
  return (lengths) => nearestOf(centroids, pointOf(lengths)).index;
}

function startFor(k: number, before: readonly Point[] | undefined): readonly Point[] | undefined {
  return before?.length === k ? before : undefined;
}

function sample(requests: readonly KindLengths[], seed: number): readonly KindLengths[] {
  if (requests.length <= POINTS_MAX) return requests;
  const random = seededRandom(seed);
  return Array.from({ length: POINTS_MAX }, () => requests[Math.floor(random() * requests.length)]).filter(
    (one) => one !== undefined,
  );
}

/**
 * Numbers the centroids. Each old centroid gives its number to the nearest new one; without an old fit, centroids are
 * numbered by cost.
 */
function numbered(centroids: readonly Point[], before: readonly Point[] | undefined): Point[] {
  const left = [...centroids].sort((a, b) => a[0] + a[1] - b[0] - b[1] || a[0] - b[0]);
  if (before === undefined) return left;
  const kept: Point[] = [];
  for (const old of before) {
    if (left.length === 0) break;
    const { index } = nearestOf(left, old);
    kept.push(...left.splice(index, 1));
  }
  return [...kept, ...left];
}

function kindsOf(requests: readonly KindLengths[], centroids: readonly Point[]): FittedKind[] {
  const members = centroids.map((): KindLengths[] => []);
  for (const one of requests) members[nearestOf(centroids, pointOf(one)).index]?.push(one);
  const names = namesOf(centroids);
  return centroids.map((centroid, i) => {
    const own = members[i] ?? [];
    const [input, output] = [Math.exp(centroid[0]), Math.exp(centroid[1])];
    const of = (values: number[], fallback: number) =>
      moments(values.length > 0 ? { kind: 'samples', values } : { kind: 'constant', mean: fallback });
    return {
      name: names[i] ?? `kind ${i}`,
      input,
      output,
      moments: {
        input: of(
          own.map((one) => one.input),
          input,
        ),
        output: of(
          own.map((one) => one.output),
          output,
        ),
      },
      examples: evenly(own.length > 0 ? own : [{ input: Math.round(input), output: Math.round(output) }], EXAMPLES),
      share: own.length / requests.length,
    };
  });
}

const EXAMPLES = 400;

/** Returns at most `most` items at equal distances in the list. A random choice would only add noise. */
function evenly<T>(all: readonly T[], most: number): T[] {
  const stride = Math.max(1, all.length / most);
  return Array.from({ length: Math.min(most, all.length) }, (_, i) => all[Math.floor(i * stride)]).filter(
    (one) => one !== undefined,
  );
}

/**
 * Names the kinds: prompts and responses are long or short relative to the middle of all centroids. If two kinds would
 * have the same name, the names also contain the numbers of tokens.
 */
function namesOf(centroids: readonly Point[]): string[] {
  const middle = (axis: 0 | 1) => centroids.reduce((sum, one) => sum + one[axis], 0) / Math.max(1, centroids.length);
  const [x, y] = [middle(0), middle(1)];
  const words = centroids.map(
    ([input, output]) => `${input >= x ? 'long' : 'short'} prompt, ${output >= y ? 'long' : 'short'} answer`,
  );
  return words.map((word, i) => {
    if (words.filter((other) => other === word).length === 1) return word;
    const [input, output] = centroids[i] ?? [0, 0];
    return `${word} (${Math.round(Math.exp(input))} + ${Math.round(Math.exp(output))} tokens)`;
  });
}

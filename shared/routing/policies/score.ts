import type { Candidate } from '../candidates.ts';
import type { Policy, RoutedRequest } from '../routing-policy.ts';
import { GPU_WEIGHTS } from './node-weights.ts';
import { openRequests } from './open-requests.ts';

/** Weights of the three terms; they sum to 1. */
const [HARDWARE, LOAD, LOCALITY] = [0.4, 0.4, 0.2];

/**
 * Decline of the load term: with this number of requests at the fastest node, it is 1/e. A slower node declines faster,
 * because its batch holds less.
 */
const REQUESTS_SCALE = 8;

/**
 * Decline of the locality term: after this number of other requests at the node, 1/e of it is left, because they
 * replace the conversation's blocks in the cache.
 */
const REPLACED_AFTER = 200;

/** Maximum number of conversations and beginnings of prompts that this isolate remembers, 150 bytes each. */
const REMEMBERED_MAX = 10_000;

/** Number of nodes that are compared. Isolates with the same stale view would all choose the best of all nodes. */
const COMPARED = 8;

/**
 * A node counts as at most this many times as fast as the median of the list: nodes publish their GPUs themselves, and
 * a false claim must not attract all requests.
 */
const SPEED_MAX = 8;

/**
 * A node with more than its share of the open requests, times BOUND and plus SLACK, gets no new ones. Without this
 * bound a fast node would win at any length of its queue, because its load term cannot fall below 0.
 */
const [BOUND, SLACK] = [1.1, 4];

interface Past {
  /** Session of the node that served the conversation last. */
  node: string;
  /** Number of requests that this isolate had sent to that node then. */
  sent: number;
}

/**
 * The micro layer of TORTA (equations 7 to 10): the node with the highest sum of hardware (its speed relative to the
 * fastest node), load (declines exponentially with the requests that it has), and locality (it served this conversation
 * or this beginning of a prompt before; declines with the requests that it served since).
 */
export function scorePolicy(): Policy {
  const past = new Map<string, Past>();
  const sent = new Map<string, number>();
  const speeds = new WeakMap<readonly Candidate[], Float64Array>();
  const speedsOf = (candidates: readonly Candidate[], request: RoutedRequest) => {
    let known = speeds.get(candidates);
    if (known === undefined) {
      known = relativeSpeeds(candidates, request);
      speeds.set(candidates, known);
    }
    return known;
  };
  return {
    name: 'score',
    pick(candidates, request, random) {
      if (candidates.length < 2) return candidates[0];
      const known = past.get(keyOf(request) ?? '');
      const speed = speedsOf(candidates, request);
      const compared = sample(candidates, known?.node, random);
      const open = compared.map((at) => openRequests(candidates[at] as Candidate));
      const total = 1 + open.reduce((sum, one) => sum + one, 0);
      const speedSum = compared.reduce((sum, at) => sum + (speed[at] ?? 0), 0);
      let [best, highest]: [Candidate | undefined, number] = [undefined, Number.NEGATIVE_INFINITY];
      for (const [n, at] of compared.entries()) {
        const [one, hardware, requests] = [candidates[at], speed[at] ?? 0, open[n] ?? 0];
        if (one === undefined || requests > (BOUND * total * hardware) / speedSum + SLACK) continue;
        const since =
          known?.node === one.session ? (sent.get(one.session) ?? 0) - known.sent : Number.POSITIVE_INFINITY;
        const score =
          HARDWARE * hardware +
          LOAD * Math.exp(-requests / (REQUESTS_SCALE * hardware)) +
          LOCALITY * Math.exp(-since / REPLACED_AFTER);
        if (score <= highest) continue;
        highest = score;
        best = one;
      }
      return best;
    },
    onRequestStart({ session: node }, request) {
      const count = (sent.get(node) ?? 0) + 1;
      keep(sent, node, count);
      const key = keyOf(request);
      if (key !== undefined) keep(past, key, { node, sent: count });
    },
    onRequestEnd() {},
  };
}

/** Speeds of the candidates relative to the fastest, above 0 and at most 1; see SPEED_MAX. */
function relativeSpeeds(candidates: readonly Candidate[], request: RoutedRequest): Float64Array {
  const claimed = Float64Array.from(candidates, (one) => {
    const weight = GPU_WEIGHTS.of(one, request);
    return Number.isFinite(weight) && weight > 0 ? weight : 1;
  });
  const median = [...claimed].sort((a, b) => a - b)[Math.floor((claimed.length - 1) / 2)] ?? 1;
  const counted = claimed.map((speed) => Math.min(speed, SPEED_MAX * median));
  const fastest = Math.max(...counted);
  return counted.map((speed) => speed / fastest);
}

/** Indices of COMPARED candidates, evenly from a random start, and of `node` if it is a candidate. */
function sample(candidates: readonly Candidate[], node: string | undefined, random: () => number): number[] {
  const { length } = candidates;
  const count = Math.min(COMPARED, length);
  const first = Math.floor(random() * length);
  const indices = Array.from({ length: count }, (_, n) => (first + Math.floor((n * length) / count)) % length);
  const known = node === undefined ? -1 : candidates.findIndex(({ session }) => session === node);
  if (known >= 0 && !indices.includes(known)) indices.push(known);
  return indices;
}

function keyOf({ model, session, prefixHash }: RoutedRequest): string | undefined {
  if (session !== undefined) return `${model} ${session}`;
  return prefixHash === undefined ? undefined : `${model} #${prefixHash}`;
}

/** Sets a value, and drops the value that was set first if there are too many. */
function keep<T>(map: Map<string, T>, key: string, value: T): void {
  map.delete(key);
  map.set(key, value);
  const oldest = map.keys().next().value;
  if (map.size > REMEMBERED_MAX && oldest !== undefined) map.delete(oldest);
}

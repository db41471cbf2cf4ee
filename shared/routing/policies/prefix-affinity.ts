import { fnv1a, mixBits } from '../../text/hash.ts';
import type { Candidate } from '../candidates.ts';
import type { Policy, RoutedRequest } from '../routing-policy.ts';
import { betterOfTwo } from './least-load.ts';
import { openRequests } from './open-requests.ts';

/** A node with more than this many times the mean number of requests gets no new ones. */
const BOUND = 1.25;

/**
 * Number of requests by which a conversation's node may exceed BOUND and still get the conversation's next request.
 * They hardly slow the engine's batch down. Without this margin, random arrivals would move conversations between
 * nodes.
 */
const SLACK = 4;

/** Maximum number of conversations that this isolate or agent remembers, 200 bytes each. */
const REMEMBERED_MAX = 10_000;

/** Maximum beginnings of prompts that this isolate or agent remembers, 100 bytes each. A prompt has a few. */
const PREFIXES_MAX = 40_000;

/**
 * Number of nodes among which the node of a conversation is chosen. If there are more nodes, the conversation's hash
 * chooses this many consecutive ones in the order of their hashes, so that the choice costs the same with 10,000 nodes.
 */
const WINDOW = 64;

/** Choices per node after which the mean is counted again. Meanwhile it changes by at most this number of requests. */
const CHOICES_PER_COUNT = 1 / 16;

interface Home {
  /** Session of the node of a conversation or prompt. */
  home: string;
  /** Index of that session in the list of candidates in which it was last found. */
  at: number;
}

interface Conversation extends Home {
  /**
   * Number of the conversation's open requests. A conversation with several open requests is treated as several
   * clients.
   */
  running: number;
}

/**
 * A conversation goes to the node that has its KV cache, and prompts with the same beginning go to the same few nodes,
 * unless those have more work than others: rendezvous hashing with bounded loads (Mirrokni et al. 2018). Every isolate
 * ranks the nodes equally, without communication. A conversation that had to move stays at its new node. A request
 * without a conversation goes to the node that last had the longest beginning of its prompt.
 */
export function prefixAffinity(): Policy {
  const conversations = new Map<string, Conversation>();
  const prefixes = new KnownPrefixes();
  const rings = new WeakMap<readonly Candidate[], Ring>();
  const ringOf = (candidates: readonly Candidate[]) => {
    let known = rings.get(candidates);
    if (known === undefined) {
      known = new Ring(candidates);
      rings.set(candidates, known);
    }
    return known;
  };
  return {
    name: 'prefix-affinity',
    prefersTiers: true,
    pick(candidates, request, random) {
      const key = keyOf(request);
      if (key === undefined || candidates.length < 2) return betterOfTwo(candidates, random);
      const known = conversations.get(nameOf(request));
      const recognized = known === undefined ? prefixes.home(candidates, request) : undefined;
      const alone = recognized !== undefined || (request.session !== undefined && (known?.running ?? 0) === 0);
      const ring = ringOf(candidates);
      const most = ring.most(alone ? SLACK : 0);
      const home = recognized ?? (known && candidates[place(candidates, known)]);
      if (home !== undefined && openRequests(home) <= most) return home;
      return ring.best(key, most) ?? ring.leastLoaded();
    },
    onRequestStart({ session: home }, request) {
      prefixes.remember(home, request);
      if (request.session === undefined) return;
      const name = nameOf(request);
      const before = conversations.get(name);
      conversations.delete(name);
      conversations.set(name, { home, at: before?.at ?? 0, running: (before?.running ?? 0) + 1 });
      const oldest = conversations.keys().next().value;
      if (conversations.size > REMEMBERED_MAX && oldest !== undefined) conversations.delete(oldest);
    },
    onRequestEnd(_candidate, request) {
      const known = conversations.get(nameOf(request));
      if (known !== undefined && known.running > 0) known.running--;
    },
  };
}

/** The nodes that had prompts last, by model and by the hash of a beginning. */
class KnownPrefixes {
  readonly #homes = new Map<number, Home>();

  home(candidates: readonly Candidate[], request: RoutedRequest): Candidate | undefined {
    for (const id of prefixIds(request).reverse()) {
      const known = this.#homes.get(id);
      const found = known && candidates[place(candidates, known)];
      if (found !== undefined) return found;
    }
    return undefined;
  }

  remember(session: string, request: RoutedRequest): void {
    for (const id of prefixIds(request)) {
      const at = this.#homes.get(id)?.at ?? 0;
      this.#homes.delete(id);
      this.#homes.set(id, { home: session, at });
    }
    for (const [oldest] of this.#homes) {
      if (this.#homes.size <= PREFIXES_MAX) return;
      this.#homes.delete(oldest);
    }
  }
}

/** Two models have no KV cache in common. Without the model, a prompt to one would move the home of the other. */
function prefixIds({ longerPrefixes = [], model }: RoutedRequest): number[] {
  const salt = longerPrefixes.length > 0 ? fnv1a(model) : 0;
  return longerPrefixes.map((hash) => mixBits(hash ^ salt));
}

/** A list of candidates in the order of their hashes. */
class Ring {
  readonly #candidates: readonly Candidate[];
  readonly #hashes: Uint32Array;
  /** Indexes of the candidates, sorted by hash. */
  readonly #order: Uint32Array;
  /** Requests at all candidates, as they were last counted. */
  #total = 0;
  #choicesUntilCount = 0;

  constructor(candidates: readonly Candidate[]) {
    this.#candidates = candidates;
    this.#hashes = Uint32Array.from(candidates, ({ session }) => fnv1a(session));
    // A hash and an index in one number, because numbers are sorted faster than by a comparison function.
    const sorted = Float64Array.from(this.#hashes, (one, at) => mixBits(one) * 2 ** 21 + at).sort();
    this.#order = Uint32Array.from(sorted, (one) => one % 2 ** 21);
  }

  /** A node with more requests than this gets no new ones now. */
  most(slack: number): number {
    const { length } = this.#candidates;
    if (this.#choicesUntilCount-- <= 0) {
      this.#total = this.#candidates.reduce((sum, candidate) => sum + openRequests(candidate), 0);
      this.#choicesUntilCount = Math.floor(CHOICES_PER_COUNT * length);
    }
    // `+ 1` includes the request that is being placed. A node without requests may always take it.
    return Math.max(0, BOUND * ((this.#total + 1) / length) + slack - 1);
  }

  /** The first candidate in rendezvous order with at most `most` requests. */
  best(key: number, most: number): Candidate | undefined {
    const { length } = this.#candidates;
    const first = length <= WINDOW ? 0 : this.#firstFrom(mixBits(key));
    for (let from = 0; from < length; from += WINDOW) {
      const chosen = this.#bestOf(first + from, Math.min(WINDOW, length - from), key, most);
      if (chosen !== undefined) return chosen;
    }
    return undefined;
  }

  #bestOf(from: number, count: number, key: number, most: number): Candidate | undefined {
    let chosen: Candidate | undefined;
    let highest = -1;
    for (let n = from; n < from + count; n++) {
      const at = this.#order[n % this.#order.length] ?? 0;
      const rank = mixBits(key ^ (this.#hashes[at] ?? 0));
      const candidate = this.#candidates[at];
      if (rank <= highest || candidate === undefined || openRequests(candidate) > most) continue;
      highest = rank;
      chosen = candidate;
    }
    return chosen;
  }

  /** Position in `#order` of the first hash that is not below `value`. */
  #firstFrom(value: number): number {
    let [low, high] = [0, this.#order.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (mixBits(this.#hashes[this.#order[middle] ?? 0] ?? 0) >= value) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  leastLoaded(): Candidate | undefined {
    let least: Candidate | undefined;
    for (const one of this.#candidates) if (least === undefined || openRequests(one) < openRequests(least)) least = one;
    return least;
  }
}

/** Nodes keep their index unless nodes join or leave. */
function place(candidates: readonly Candidate[], known: Home): number {
  const { home, at } = known;
  if (candidates[at]?.session === home) return at;
  known.at = candidates.findIndex(({ session }) => session === home);
  return known.at;
}

function nameOf({ model, session = '' }: RoutedRequest): string {
  return `${model} ${session}`;
}

function keyOf(request: RoutedRequest): number | undefined {
  if (request.session !== undefined) return fnv1a(nameOf(request));
  return request.prefixHash;
}

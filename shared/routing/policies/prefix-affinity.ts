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

interface Conversation {
  /** Session of the conversation's node. */
  home: string;
  /** Index of that session in the list of candidates in which it was last found. */
  at: number;
  /**
   * Number of the conversation's open requests. A conversation with several open requests is treated as several
   * clients.
   */
  running: number;
}

/**
 * A conversation goes to the node that has its KV cache, and prompts with the same beginning go to the same few nodes,
 * unless those have more work than others: rendezvous hashing with bounded loads (Mirrokni et al. 2018). Every isolate
 * ranks the nodes equally, without communication. A conversation that had to move stays at its new node.
 */
export function prefixAffinity(): Policy {
  const conversations = new Map<string, Conversation>();
  const hashes = new WeakMap<readonly Candidate[], Uint32Array>();
  const hashesOf = (candidates: readonly Candidate[]) => {
    let known = hashes.get(candidates);
    if (known === undefined) {
      known = Uint32Array.from(candidates, ({ session }) => fnv1a(session));
      hashes.set(candidates, known);
    }
    return known;
  };
  return {
    name: 'prefix-affinity',
    pick(candidates, request, random) {
      const key = keyOf(request);
      if (key === undefined || candidates.length < 2) return betterOfTwo(candidates, random);
      const known = conversations.get(nameOf(request));
      const alone = request.session !== undefined && (known?.running ?? 0) === 0;
      const { pressures, most, least } = measure(candidates, alone ? SLACK : 0);
      const hasRoom = (at: number) => (pressures[at] ?? 0) <= most;
      const home = known === undefined ? -1 : place(candidates, known);
      if (home >= 0 && hasRoom(home)) return candidates[home];
      return best(candidates, hashesOf(candidates), key, hasRoom) ?? candidates[least];
    },
    onRequestStart({ session: home }, request) {
      if (request.session === undefined) return;
      const name = nameOf(request);
      const running = (conversations.get(name)?.running ?? 0) + 1;
      conversations.delete(name);
      conversations.set(name, { home, at: 0, running });
      const oldest = conversations.keys().next().value;
      if (conversations.size > REMEMBERED_MAX && oldest !== undefined) conversations.delete(oldest);
    },
    onRequestEnd(_candidate, request) {
      const known = conversations.get(nameOf(request));
      if (known !== undefined && known.running > 0) known.running--;
    },
  };
}

/** Nodes keep their index unless nodes join or leave. */
function place(candidates: readonly Candidate[], conversation: Conversation): number {
  const { home, at } = conversation;
  if (candidates[at]?.session === home) return at;
  conversation.at = candidates.findIndex(({ session }) => session === home);
  return conversation.at;
}

function nameOf({ model, session = '' }: RoutedRequest): string {
  return `${model} ${session}`;
}

function keyOf(request: RoutedRequest): number | undefined {
  if (request.session !== undefined) return fnv1a(nameOf(request));
  return request.prefixHash;
}

interface Measure {
  pressures: Float64Array;
  /** A node with more requests than this gets no new ones now. */
  most: number;
  /** Index of a node with the fewest requests. */
  least: number;
}

/** Every choice reuses this array, because 8 KiB for a thousand nodes would otherwise be allocated each time. */
let scratch = new Float64Array(64);

function measure(candidates: readonly Candidate[], slack: number): Measure {
  if (scratch.length < candidates.length) scratch = new Float64Array(2 * candidates.length);
  const pressures = scratch;
  let total = 0;
  let least = 0;
  for (let at = 0; at < candidates.length; at++) {
    const candidate = candidates[at];
    const one = candidate === undefined ? 0 : openRequests(candidate);
    pressures[at] = one;
    total += one;
    if (one < (pressures[least] ?? 0)) least = at;
  }
  // `total + 1` includes the request that is being placed. A node without requests may always take it.
  return { pressures, most: Math.max(0, BOUND * ((total + 1) / candidates.length) + slack - 1), least };
}

/** The first allowed node in rendezvous order. */
function best(
  candidates: readonly Candidate[],
  hashes: Uint32Array,
  key: number,
  isAllowed: (at: number) => boolean,
): Candidate | undefined {
  let chosen = -1;
  let highest = -1;
  for (let at = 0; at < candidates.length; at++) {
    const rank = mixBits(key ^ (hashes[at] ?? 0));
    if (rank <= highest || !isAllowed(at)) continue;
    highest = rank;
    chosen = at;
  }
  return candidates[chosen];
}

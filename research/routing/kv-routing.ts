/**
 * Replays a trace of conversations at nodes with prefix caches, to measure what a router gains if it knows the content
 * of all caches, as vLLM's KV events would report it.
 */

import { PrefixCache } from '../../scheduler/simulator/prefix-cache.ts';
import type { Candidate } from '../../shared/routing/candidates.ts';
import { leastLoadPolicy } from '../../shared/routing/policies/least-load.ts';
import { prefixAffinity } from '../../shared/routing/policies/prefix-affinity.ts';
import type { RoutedRequest } from '../../shared/routing/routing-policy.ts';
import { fnv1a } from '../../shared/text/hash.ts';
import type { TracedRequest } from './mooncake-trace.ts';

export const ROUTERS = [
  'least-load',
  'prefix-affinity, first KiB',
  'prefix-affinity, prompts recognized',
  'prefix-affinity, conversations named',
  'known caches',
  'known caches and queues',
] as const;
export type Router = (typeof ROUTERS)[number];

export interface Fleet {
  nodes: number;
  /** Blocks in the cache of one node. */
  blocks: number;
  blockTokens: number;
  /** Tokens per second that a node computes of prompts, one prompt after the other. */
  prefillRate: number;
  /** Seconds for one token of a response. */
  tokenSeconds: number;
  /** The trace is replayed faster by this factor. */
  speed: number;
}

export interface Outcome {
  /** Share of the prompts' tokens that were in a cache. */
  cached: number;
  /** Seconds to the first token. */
  mean: number;
  p95: number;
}

/** The bound of prefix-affinity, so that both routers trade load for the cache equally. */
const BOUND = 1.25;
const SLACK = 4;

interface Node {
  candidate: Candidate & { inFlight: number };
  cache: PrefixCache;
  /** When the node has computed all prompts that it was given. */
  freeAt: number;
}

export function replay(
  requests: readonly TracedRequest[],
  fleet: Fleet,
  router: Router,
  random: () => number,
): Outcome {
  const nodes = Array.from({ length: fleet.nodes }, (_, n): Node => {
    const candidate = { session: `node-${n}`, provider: 'p', cluster: 'c', tier: 'stable', inFlight: 0 };
    return { candidate, cache: new PrefixCache(), freeAt: 0 };
  });
  const candidates = nodes.map(({ candidate }) => candidate);
  const policy = router === 'least-load' ? leastLoadPolicy : prefixAffinity();
  const ends: { at: number; node: Node; asked: RoutedRequest; blocks: readonly number[] }[] = [];
  const firsts: number[] = [];
  let [tokens, hits] = [0, 0];
  const endUntil = (now: number) => {
    for (let end = ends[0]; end !== undefined && end.at <= now; end = ends[0]) {
      ends.shift();
      end.node.candidate.inFlight--;
      end.node.cache.release(end.blocks);
      end.node.cache.trim(fleet.blocks);
      policy.onRequestEnd(end.node.candidate, end.asked, { kind: 'complete' } as never);
    }
  };
  for (const request of requests) {
    const now = request.at / fleet.speed;
    endUntil(now);
    const asked = askedOf(request, router);
    const chosen = chooser(router, nodes, request, fleet, now) ?? policy.pick(candidates, asked, random);
    const node = nodes[candidates.indexOf(chosen as never)] ?? nodes[0];
    if (node === undefined) throw new Error('no nodes');
    policy.onRequestStart(node.candidate, asked);
    const found = node.cache.match(request.blocks);
    node.cache.reserve(request.blocks, found);
    node.cache.add(request.blocks, found);
    const hit = Math.min(request.input, found * fleet.blockTokens);
    tokens += request.input;
    hits += hit;
    node.freeAt = Math.max(node.freeAt, now) + (request.input - hit) / fleet.prefillRate;
    firsts.push(node.freeAt - now);
    node.candidate.inFlight++;
    const at = node.freeAt + request.output * fleet.tokenSeconds;
    const place = ends.findLastIndex((one) => one.at <= at) + 1;
    ends.splice(place, 0, { at, node, asked, blocks: request.blocks });
  }
  firsts.sort((a, b) => a - b);
  const mean = firsts.reduce((sum, one) => sum + one, 0) / firsts.length;
  return { cached: hits / tokens, mean, p95: firsts[Math.floor(firsts.length * 0.95)] ?? 0 };
}

/** Lengths, in blocks of 512 tokens, of the beginnings that the gateway hashes. */
const LONGER = [2, 4, 8, 16, 32];

function chooser(
  router: Router,
  nodes: readonly Node[],
  { blocks, input }: TracedRequest,
  { blockTokens, prefillRate }: Fleet,
  now: number,
): Candidate | undefined {
  if (router === 'known caches') return mostCached(nodes, blocks);
  if (router !== 'known caches and queues') return undefined;
  const firstToken = ({ cache, freeAt }: Node) =>
    Math.max(freeAt, now) + (input - Math.min(input, cache.match(blocks) * blockTokens)) / prefillRate;
  const [soonest] = nodes.map((node) => ({ node, at: firstToken(node) })).sort((a, b) => a.at - b.at);
  return soonest?.node.candidate;
}

/** Without a name, the router sees the beginning of the prompt: its first KiB, which is in the first block. */
function askedOf({ conversation, blocks, input }: TracedRequest, router: Router): RoutedRequest {
  const named = router === 'prefix-affinity, conversations named';
  const longerPrefixes =
    router === 'prefix-affinity, prompts recognized' ? LONGER.flatMap((n) => blocks[n - 1] ?? []) : [];
  return {
    model: 'm',
    priority: 'interactive',
    inputTokens: input,
    ...(named ? { session: String(conversation) } : { prefixHash: fnv1a(String(blocks[0])), longerPrefixes }),
  };
}

/** The node with the most blocks of the prompt, unless it has more requests than prefix-affinity allows. */
function mostCached(nodes: readonly Node[], blocks: readonly number[]): Candidate | undefined {
  const total = nodes.reduce((sum, { candidate }) => sum + candidate.inFlight, 0);
  const most = BOUND * ((total + 1) / nodes.length) + SLACK - 1;
  let best: { candidate: Candidate; found: number } | undefined;
  for (const { candidate, cache } of nodes) {
    if (candidate.inFlight > most) continue;
    const found = cache.match(blocks);
    const isBetter =
      best === undefined ||
      found > best.found ||
      (found === best.found && candidate.inFlight < best.candidate.inFlight);
    if (isBetter) best = { candidate, found };
  }
  return best?.candidate ?? nodes[0]?.candidate;
}

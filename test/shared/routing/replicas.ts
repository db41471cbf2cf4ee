/**
 * Replicas in virtual time: each serves some requests concurrently, the rest wait. For measurements of policies, not of
 * engines.
 */
import type { Candidate } from '../../../shared/routing/candidates.ts';
import type { Policy } from '../../../shared/routing/routing-policy.ts';
import { exponential, seeded } from '../../sim/random.ts';

const SLOTS = 4;

interface Replica extends Candidate {
  inFlight: number;
  /** Mean seconds per request. */
  slowness: number;
  /** Time at which each slot becomes free. */
  free: number[];
  served: number;
}

export function replicas(slowness: readonly number[]): Replica[] {
  return slowness.map((one, n) => ({
    session: `node-${n}`,
    provider: 'lab',
    cluster: 'alps',
    tier: 'stable',
    inFlight: 0,
    slowness: one,
    free: Array.from({ length: SLOTS }, () => 0),
    served: 0,
  }));
}

interface Traffic {
  requests: number;
  /** Fraction of what all replicas together can serve. */
  load: number;
  seed: number;
  /** Number of conversations; they take turns at random. */
  conversations?: number;
  /** Prefix hash that all requests share. */
  prefix?: number;
}

interface Served {
  /** Per replica. */
  shares: number[];
  /** Seconds from arrival to end. */
  p95: number;
  /** Fraction of the turns, except the first ones, that went to the replica of the conversation. */
  kept: number;
  /** Requests of the busiest replica divided by the mean. */
  imbalance: number;
}

/**
 * Requests arrive at random (open loop), are served in the order of arrival at each replica, and take a random time.
 */
export function serve(policy: Policy, nodes: Replica[], traffic: Traffic): Served {
  const random = seeded(traffic.seed);
  const rate = nodes.reduce((sum, { slowness }) => sum + SLOTS / slowness, 0) * traffic.load;
  const running: { node: Replica; end: number; over(): void }[] = [];
  const homes = new Map<string, string>();
  const talking = new Set<string>();
  const took: number[] = [];
  let [now, kept, turns] = [0, 0, 0];
  for (let n = 0; n < traffic.requests; n++) {
    now += exponential(random, 1 / rate);
    for (const done of running.filter(({ end }) => end <= now)) {
      done.node.inFlight--;
      done.over();
      running.splice(running.indexOf(done), 1);
    }
    const { conversations, prefix } = traffic;
    const session = conversations === undefined ? undefined : whoIsNext(conversations, talking, random);
    if (session !== undefined) talking.add(session);
    const asked = { model: 'm', priority: 'interactive' as const, inputTokens: 100, session, prefixHash: prefix };
    const chosen = policy.pick(nodes, asked, random);
    const node = nodes.find((one) => one === chosen);
    if (node === undefined) throw new Error('nobody was chosen');
    const slot = node.free.indexOf(Math.min(...node.free));
    const end = Math.max(now, node.free[slot] ?? 0) + exponential(random, node.slowness);
    node.free[slot] = end;
    node.inFlight++;
    node.served++;
    policy.onRequestStart(node, asked);
    const over = () => {
      policy.onRequestEnd(node, asked, 'complete');
      if (session !== undefined) talking.delete(session);
    };
    running.push({ node, end, over });
    took.push(end - now);
    if (session === undefined) continue;
    if (homes.has(session)) turns++;
    if (homes.get(session) === node.session) kept++;
    homes.set(session, node.session);
  }
  took.sort((a, b) => a - b);
  const served = nodes.map((node) => node.served);
  return {
    shares: served.map((one) => one / traffic.requests),
    p95: took[Math.floor(0.95 * took.length)] ?? 0,
    kept: turns === 0 ? 1 : kept / turns,
    imbalance: Math.max(...served) / (traffic.requests / nodes.length),
  };
}

/** A random conversation that does not wait for a response, because a turn follows the response to the previous one. */
function whoIsNext(conversations: number, talking: ReadonlySet<string>, random: () => number): string {
  for (;;) {
    const one = `c${Math.floor(random() * conversations)}`;
    if (!talking.has(one)) return one;
  }
}

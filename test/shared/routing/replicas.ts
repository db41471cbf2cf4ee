/** Replicas in virtual time: each serves some requests at once, the rest wait. For figures of policies, not of engines. */
import type { Candidate } from '../../../shared/routing/candidates.ts';
import type { Policy } from '../../../shared/routing/policy.ts';
import { exponential, seeded } from '../../sim/random.ts';

const SLOTS = 4;

interface Replica extends Candidate {
  inFlight: number;
  /** Mean seconds of one request. */
  slowness: number;
  /** When each slot is free. */
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
  /** Of what all of them together can serve. */
  load: number;
  seed: number;
  /** So many conversations take turns at random. */
  conversations?: number;
  /** All requests begin alike. */
  prefix?: number;
}

interface Served {
  /** Of each replica. */
  shares: number[];
  /** Seconds from arrival to end. */
  p95: number;
  /** Share of the turns, but for the first, that went where the conversation was. */
  kept: number;
  /** Requests of the busiest by the mean. */
  imbalance: number;
}

/** Requests come at random (open loop), are served in the order of coming at each replica, and take a random time. */
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

/** One that waits for no answer: a turn follows the answer to the one before. */
function whoIsNext(conversations: number, talking: ReadonlySet<string>, random: () => number): string {
  for (;;) {
    const one = `c${Math.floor(random() * conversations)}`;
    if (!talking.has(one)) return one;
  }
}

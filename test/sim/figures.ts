/**
 * The registry's required figures, measured in a world. Each figure builds its world from a seed, so each can be
 * repeated on its own.
 */
import { pick } from './random.ts';
import { type Agent, World, type WorldOptions } from './world.ts';

/** A new world dials and compares first; figures start after that. */
const WARM_UP_MS = 12_000;

export interface Latencies {
  p50: number;
  p95: number;
  p99: number;
  /** Over all nodes and updates. */
  last: number;
  /** Nodes that did not receive an update within its time. */
  missed: number;
}

function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}

/** Milliseconds from an owner's update until other agents have it. */
export function convergence(options: Partial<WorldOptions>, updates: number, patienceMs = 6000): Latencies {
  const world = new World(options);
  world.run(WARM_UP_MS);
  const all: number[] = [];
  let missed = 0;
  for (let i = 0; i < updates; i++) {
    const heard = hearing(world, pick(world.running(), world.rng), patienceMs);
    missed += world.running().length - 1 - heard.length;
    all.push(...heard);
  }
  return summary(all, missed);
}

export function summary(times: number[], missed: number): Latencies {
  const all = times.sort((a, b) => a - b);
  return { p50: quantile(all, 0.5), p95: quantile(all, 0.95), p99: quantile(all, 0.99), last: all.at(-1) ?? 0, missed };
}

/** One update of `speaker`: the time in which each other agent received it. Ends when all have it. */
export function hearing(world: World, speaker: Agent, patienceMs: number): number[] {
  const { session } = speaker.membership;
  const from = world.clock.now;
  const heard = new Map<string, number>();
  const others = new Set(world.running().map(({ membership }) => membership.session));
  others.delete(session);
  world.listener = (peer, action, at) => {
    if (action.type !== 'changed' || !action.sessions.includes(session) || !others.has(peer)) return;
    if (!heard.has(peer)) heard.set(peer, at - from);
  };
  world.say(speaker, 'SERVING', true);
  world.run(patienceMs, () => heard.size === others.size);
  // Other events happen before the next update: pings, stalls, a turn of the ring.
  world.run(200 + world.rng() * 600);
  world.listener = () => {};
  return [...heard.values()];
}

/** Bytes per second that a node sends while nothing happens: mean and largest; messages per minute at the gateway. */
export function idle(options: Partial<WorldOptions>, seconds: number) {
  const world = new World(options);
  world.run(70_000);
  return { ...rates(world, () => world.run(seconds * 1000), seconds), perGatewayMinute: gatewayRate(world, 120) };
}

function gatewayRate(world: World, seconds: number): number {
  const received = () => world.gateways.reduce((sum, { node }) => sum + node.received.messages, 0);
  const before = received();
  world.run(seconds * 1000);
  return ((received() - before) / seconds) * 60;
}

function rates(world: World, during: () => void, seconds: number): { mean: number; max: number } {
  const before = new Map(world.agents.map((agent) => [agent, agent.node.sent.bytes]));
  during();
  const sent = world.agents.map((agent) => (agent.node.sent.bytes - (before.get(agent) ?? 0)) / seconds);
  return { mean: sent.reduce((sum, rate) => sum + rate, 0) / sent.length, max: Math.max(...sent) };
}

/** Every node publishes an update every `everyMs`: bytes per second and node. */
export function republishing(options: Partial<WorldOptions>, everyMs: number, seconds: number) {
  const world = new World(options);
  world.run(WARM_UP_MS);
  for (const agent of world.agents) {
    const again = () => {
      world.say(agent, 'SERVING', true);
      world.clock.after(everyMs, again);
    };
    world.clock.after(world.rng() * everyMs, again);
  }
  world.run(3 * everyMs);
  return rates(world, () => world.run(seconds * 1000), seconds);
}

/** Every node leaves and returns as a new session every `everyMs`: all bytes divided by nodes and time. */
export function rejoining(options: Partial<WorldOptions>, everyMs: number, seconds: number) {
  const world = new World(options);
  world.run(WARM_UP_MS);
  const nodes = world.agents.length;
  for (const agent of [...world.agents]) {
    let current = agent;
    const again = () => {
      current = world.rejoin(current);
      world.clock.after(everyMs, again);
    };
    world.clock.after(world.rng() * everyMs, again);
  }
  world.run(3 * everyMs);
  const sent = () => world.agents.reduce((sum, { node }) => sum + node.sent.bytes, 0);
  const before = sent();
  world.run(seconds * 1000);
  const mean = (sent() - before) / seconds / nodes;
  world.run(2000);
  return { mean };
}

/**
 * A process that stops answering with its sockets open: milliseconds until the gateway does not route to it any more.
 */
export function silentHang(options: Partial<WorldOptions>, trials: number): Latencies {
  const all: number[] = [];
  let missed = 0;
  for (let i = 0; i < trials; i++) {
    const world = new World({ ...options, seed: (options.seed ?? 1) + i });
    world.run(WARM_UP_MS + world.rng() * 2000);
    const victim = pick(world.agents, world.rng);
    victim.node.hang();
    const took = world.until(() => !world.routable(world.gateway, victim.membership.session), 30_000, 5);
    if (took === undefined) missed++;
    else all.push(took);
  }
  return summary(all, missed);
}

/** A killed process, detected by its tunnel: milliseconds until the gateway does not route to it any more. */
export function killed(options: Partial<WorldOptions>, trials: number): Latencies {
  const all: number[] = [];
  const world = new World(options);
  world.run(WARM_UP_MS);
  for (let i = 0; i < trials; i++) {
    const victim = pick(world.running(), world.rng);
    const { session } = victim.membership;
    const from = world.clock.now;
    world.listener = () => {};
    world.kill(victim);
    // Routing checks if the tunnel is open; the gateway learns of its end after one trip.
    world.run(100, () => world.gatewayKnowsClosed(session));
    all.push(world.clock.now - from);
    world.run(500);
  }
  return summary(all, 0);
}

/** Healthy nodes for `hours`: how many suspicions there were, and how often a direct path was given up for a while. */
export function falseSuspicions(options: Partial<WorldOptions>, hours: number) {
  const world = new World(options);
  world.run(WARM_UP_MS);
  world.told.length = 0;
  world.run(hours * 3_600_000);
  const said = world.told.map(({ action }) => (action.type === 'liveness' ? action.liveness : ''));
  return {
    nodeHours: hours * world.agents.length,
    suspected: said.filter((liveness) => liveness === 'suspected').length,
    unreachable: said.filter((liveness) => liveness === 'unreachable').length,
  };
}

/**
 * A mass start: `nodes` processes start within `withinMs` and know no other node. Milliseconds until all replicas are
 * equal, and bytes per second and node meanwhile.
 */
export function massStart(options: Partial<WorldOptions>, nodes: number, withinMs: number) {
  const world = new World({ ...options, clusters: [1] });
  world.run(2000);
  const from = world.clock.now;
  for (let i = 0; i < nodes - 1; i++) {
    world.clock.after(world.rng() * withinMs, () => world.say(world.join('c0'), 'SERVING'));
  }
  world.run(withinMs);
  const took = world.until(() => world.agree(), 60_000, 50);
  const seconds = (world.clock.now - from) / 1000;
  const sent = world.agents.reduce((sum, { node }) => sum + node.sent.bytes, 0);
  return { equalAfterMs: took, bytesPerSecond: sent / seconds / nodes };
}

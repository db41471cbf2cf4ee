/**
 * One seed, one world, two phases (after TigerBeetle's VOPR): random faults while invariants are checked, then
 * everything heals and all replicas must become equal and trust each other again. `describe` prints the plan of a seed.
 */
import { sessionStateRank } from '../../shared/lattice/node-record.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { atPeace, evicted, session } from './observe.ts';
import { fork, pick, type Rng, seeded } from './random.ts';
import { type Agent, World, type WorldOptions } from './world.ts';

const FAULTS_MS = 40_000;
/** Time until equality after the last fault, and until trust after that: freezes last ten minutes. */
const EQUAL_MS = 5000;
const PEACE_MS = 90_000;
const NODES_MAX = 40;

interface Plan {
  seed: number;
  world: Partial<WorldOptions>;
  /** Of each kind of fault, 0 to 1; a seed leaves some out, so that rare mixtures occur. */
  weights: Record<string, number>;
}

function plan(seed: number): Plan {
  const rng = seeded(seed);
  const clusters = Array.from({ length: 1 + Math.floor(rng() * 3) }, () => 2 + Math.floor(rng() ** 2 * 14));
  const loss = rng() < 0.5 ? 0 : rng() * 0.1;
  // Tunnels run over TCP: messages to a gateway arrive late, but are not lost.
  const network = { loss, gatewayLoss: 0, spikes: rng() * 0.02, spikeMs: 5 + rng() * 50, jitter: rng() };
  const weights: Record<string, number> = {};
  for (const kind of Object.keys(FAULTS)) weights[kind] = rng() < 0.4 ? 0 : rng();
  return {
    seed,
    world: { seed, clusters, network, gateways: rng() < 0.25 ? 2 : 1, perHost: rng() < 0.7 ? 1 : 3 },
    weights,
  };
}

/** Tracks the faults of sessions: an evicted session must have had a reason to be silent. */
class Swarm {
  readonly world: World;
  readonly rng: Rng;
  readonly troubled = new Set<string>();
  readonly left = new Set<string>();
  readonly steps: string[] = [];
  readonly #ranks = new Map<string, number>();

  constructor(world: World, rng: Rng) {
    this.world = world;
    this.rng = rng;
    world.listener = (peer, action) => {
      if (action.type === 'ended') this.#roll(peer);
      if (action.type === 'changed') for (const id of action.sessions) this.#checkRank(peer, id);
    };
  }

  /** Like `otela-agent`: a session that is over is followed by another. */
  #roll(peer: string): void {
    const agent = this.world.agents.find((other) => session(other) === peer);
    if (agent === undefined || agent.node.status === 'dead') return;
    this.world.clock.after(50, () => {
      this.world.kill(agent);
      this.say(this.world.join(agent.cluster, agent.host, agent.node.replica), 'SERVING');
    });
  }

  #checkRank(peer: string, id: string): void {
    const holder = [...this.world.agents, ...this.world.gateways].find(({ node }) =>
      node.self.kind === 'agent' ? node.self.session === peer : node.self.id === peer,
    );
    const entry = holder?.node.replica.get(id);
    if (holder === undefined || entry === undefined) return;
    const key = `${holder.node.name} ${holder.node.replica === undefined} ${id}`;
    const rank = sessionStateRank(entry.state) * 1e6 + (entry.state === 'LEFT' ? 0 : entry.version);
    const known = this.#ranks.get(key) ?? -1;
    if (rank < known && holder.kind === 'agent') throw new Error(`${id} went from ${known} back to ${rank} at ${peer}`);
    this.#ranks.set(key, rank);
  }

  say(agent: Agent, state: 'SERVING' | 'DOWN' | 'LEFT'): void {
    if (agent.node.status !== 'running' || this.left.has(session(agent))) return;
    if (state === 'LEFT') this.left.add(session(agent));
    this.world.say(agent, state, state === 'SERVING');
  }

  anyone(): Agent {
    const running = this.world.running();
    return pick(running.length > 0 ? running : this.world.agents, this.rng);
  }

  /** Marks every agent, because an agent with a cut path may look silent to the other end. */
  troubleAll(): void {
    for (const agent of this.world.agents) this.troubled.add(session(agent));
  }
}

const FAULTS: Record<string, (swarm: Swarm) => void> = {
  word: (swarm) => {
    const agent = swarm.anyone();
    const { state } = agent.membership;
    if (state === 'JOIN' || state === 'SERVING') swarm.say(agent, 'SERVING');
  },
  down: (swarm) => swarm.say(swarm.anyone(), 'DOWN'),
  leave: (swarm) => {
    const agent = swarm.anyone();
    if (swarm.world.running().length < 3) return;
    swarm.say(agent, 'LEFT');
    swarm.world.clock.after(20, () => swarm.world.kill(agent));
  },
  join: (swarm) => {
    if (swarm.world.running().length >= NODES_MAX) return;
    const { cluster } = pick(swarm.world.agents, swarm.rng);
    swarm.say(swarm.world.join(cluster), 'SERVING');
  },
  kill: (swarm) => {
    if (swarm.world.running().length < 3) return;
    const agent = swarm.anyone();
    swarm.troubled.add(session(agent));
    swarm.world.kill(agent);
  },
  powerOff: (swarm) => {
    if (swarm.world.running().length < 3) return;
    const agent = swarm.anyone();
    swarm.troubled.add(session(agent));
    swarm.world.powerOff(agent);
  },
  hang: (swarm) => {
    const agent = swarm.anyone();
    if (agent.node.status !== 'running') return;
    swarm.troubled.add(session(agent));
    agent.node.hang();
    swarm.world.clock.after(200 + swarm.rng() * 20_000, () => agent.node.resume());
  },
  stall: (swarm) => swarm.anyone().node.stall(swarm.rng() * 3000),
  split: (swarm) => {
    const some = new Set(swarm.world.agents.filter(() => swarm.rng() < 0.4).map(({ host }) => host));
    const oneWay = swarm.rng() < 0.3;
    swarm.troubleAll();
    swarm.world.cut((a, b) => some.has(a) !== some.has(b) && !(oneWay && some.has(a)));
  },
  heal: (swarm) => swarm.world.heal(),
  noTunnel: (swarm) => {
    const agent = swarm.anyone();
    swarm.troubled.add(session(agent));
    swarm.world.closeTunnels(agent);
    swarm.world.clock.after(swarm.rng() * 15_000, () => swarm.world.openTunnels(agent));
  },
  gatewaySleeps: (swarm) => {
    swarm.world.restartGateway(pick(swarm.world.gateways, swarm.rng), 'all');
  },
  gatewayForgets: (swarm) => {
    swarm.troubleAll();
    swarm.world.restartGateway(pick(swarm.world.gateways, swarm.rng), 'nothing');
  },
};

function draw(weights: Record<string, number>, rng: Rng): string {
  const kinds = Object.entries(weights);
  let left = rng() * kinds.reduce((sum, [, weight]) => sum + weight, 0);
  for (const [kind, weight] of kinds) {
    left -= weight;
    if (left < 0) return kind;
  }
  return 'word';
}

/** @throws Error with the seed, its plan and the violated invariant */
export function runSeed(seed: number): { equalMs: number; peaceMs: number } {
  const drawn = plan(seed);
  const world = new World(drawn.world);
  const swarm = new Swarm(world, fork(world.rng));
  try {
    return phases(swarm, drawn);
  } catch (error) {
    const story = `seed ${seed} ${JSON.stringify(drawn)}\n${swarm.steps.join('\n')}`;
    throw new Error(`${errorText(error)}\n${story}`, { cause: error });
  }
}

function phases(swarm: Swarm, drawn: Plan): { equalMs: number; peaceMs: number } {
  const { world, rng } = swarm;
  world.run(3000);
  const until = world.clock.now + FAULTS_MS;
  while (world.clock.now < until) {
    world.run(100 + rng() * 1500);
    const kind = draw(drawn.weights, rng);
    swarm.steps.push(`${world.clock.now.toFixed(0)} ${kind}`);
    FAULTS[kind]?.(swarm);
    checkSafety(swarm);
  }
  world.heal();
  for (const agent of world.agents) agent.node.resume();
  world.network.options.loss = 0;
  world.run(2500);
  for (const agent of world.running()) world.openTunnels(agent);
  const equalMs = world.until(() => world.agree(), EQUAL_MS, 50);
  if (equalMs === undefined) throw new Error(`not equal ${EQUAL_MS} ms after all healed: ${differences(world)}`);
  const peaceMs = world.until(() => atPeace(world), PEACE_MS, 500);
  if (peaceMs === undefined) throw new Error('somebody who runs is still suspected');
  checkSafety(swarm);
  checkBounds(world);
  return { equalMs, peaceMs };
}

function checkSafety(swarm: Swarm): void {
  const { world, troubled, left } = swarm;
  for (const gone of evicted(world)) {
    if (!troubled.has(gone)) throw new Error(`${gone} was evicted and nothing had happened to it`);
  }
  const words = new Set(evicted(world));
  for (const { node } of [...world.running(), ...world.gateways]) {
    for (const entry of node.replica.entries()) {
      if (entry.state === 'LEFT' && !left.has(entry.session) && !words.has(entry.session))
        throw new Error(`${entry.session} is LEFT at ${node.name} and nobody said so`);
    }
  }
}

/** Equal sums must mean equal contents, and bounded state must have stayed within its bounds. */
function checkBounds(world: World): void {
  const [first, ...others] = world.running();
  const content = (agent: Agent) =>
    [...agent.node.replica.entries()]
      .map(({ session: id, record, eviction }) => `${id} ${record?.hash} ${eviction?.hash}`)
      .sort()
      .join();
  for (const agent of others) {
    const isEqual =
      first !== undefined && world.fingerprint(agent.node.replica) === world.fingerprint(first.node.replica);
    if (first !== undefined && isEqual !== (content(agent) === content(first)))
      throw new Error(`${isEqual ? 'equal' : 'different'} sums, ${isEqual ? 'different' : 'equal'} contents`);
    if (agent.node.queued > 1000) throw new Error(`${agent.node.queued} events wait at ${agent.node.name}`);
  }
}

function differences(world: World): string {
  const count = new Map<string, number>();
  for (const { node } of [...world.running(), ...world.gateways]) {
    const key = world.fingerprint(node.replica);
    count.set(key, (count.get(key) ?? 0) + 1);
  }
  return [...count.values()].join('+');
}

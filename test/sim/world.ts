/**
 * Clusters of agents and their gateways in virtual time. All decisions are made by the real code (shared/gossip,
 * shared/lattice); simulated are the network, the CPU, the signatures and the tunnels. Messages of tunnels count as the
 * agents' own.
 */
import { type GossipAction, livenessOf, type PeerId, saveState } from '../../shared/gossip/index.ts';
import type { SessionState } from '../../shared/lattice/node-record.ts';
import type { RegistryReplica } from '../../shared/lattice/registry-replica.ts';
import type { Update } from '../../shared/lattice/registry-update.ts';
import { Clock } from './clock.ts';
import { standInCrypto } from './crypto.ts';
import type { Issuer } from './issuer.ts';
import { Links } from './links.ts';
import { DEFAULT_NETWORK, Network, type NetworkOptions } from './network.ts';
import type { SimNode } from './node.ts';
import { type Agent, type Gateway, type Place, Places } from './places.ts';
import { Population, type PopulationOptions } from './population.ts';
import { fork, type Rng, seeded } from './random.ts';
import { Tunnels } from './tunnels.ts';

export type { Agent } from './places.ts';

export interface WorldOptions extends PopulationOptions {
  seed: number;
  /** Agents per cluster. */
  clusters: number[];
  network: Partial<NetworkOptions>;
}

const DEFAULT_WORLD: WorldOptions = {
  seed: 1,
  clusters: [8],
  gateways: 1,
  network: {},
  gossip: {},
  stalls: true,
  perHost: 1,
  skew: () => 0,
};

/** How long a tunnel survives after its path is cut. */
const TUNNEL_TIMEOUT_MS = 20_000;

export interface Told {
  at: number;
  node: string;
  action: GossipAction;
}

export class World {
  readonly clock = new Clock();
  readonly options: WorldOptions;
  readonly crypto = standInCrypto();
  readonly network: Network;
  readonly rng: Rng;
  readonly agents: Agent[];
  readonly gateways: Gateway[];
  readonly #places: Places;
  readonly #population: Population;
  readonly #links: Links;
  readonly #tunnels: Tunnels;
  /** Every notable action, in order, for tests to read. */
  readonly told: Told[] = [];
  /** Called for each action with the virtual time at which it took effect. */
  listener: (peer: PeerId, action: GossipAction, at: number) => void = () => {};

  constructor(options: Partial<WorldOptions> = {}) {
    this.options = { ...DEFAULT_WORLD, ...options };
    const rng = seeded(this.options.seed);
    this.rng = fork(rng);
    this.network = new Network({ ...DEFAULT_NETWORK, ...this.options.network }, fork(rng));
    this.#places = new Places(this.clock, this.network);
    this.#links = new Links(this.#places);
    this.#tunnels = new Tunnels(this.#places);
    this.agents = this.#places.agents;
    this.gateways = this.#places.gateways;
    this.#population = new Population({
      places: this.#places,
      crypto: this.crypto,
      rng: this.rng,
      options: this.options,
      act: this.#act.bind(this),
    });
    this.#population.settle(this.options.clusters);
    for (const gateway of this.gateways) gateway.node.take({ type: 'start' });
    for (const agent of this.agents) this.#startAgent(agent);
  }

  get issuer(): Issuer {
    return this.#population.issuer(0);
  }

  get gateway(): Gateway {
    const gateway = this.gateways[0];
    if (gateway === undefined) throw new Error('this world has no gateway');
    return gateway;
  }

  agent(index: number): Agent {
    const agent = this.agents[index];
    if (agent === undefined) throw new Error(`no agent ${index}`);
    return agent;
  }

  #startAgent(agent: Agent): void {
    agent.node.take({ type: 'start' });
    agent.node.take({ type: 'local', updates: [agent.membership.full()] });
    for (const { id } of this.gateways) this.#tunnels.open(agent, id);
  }

  /** A new agent with a fresh session; it knows no other node unless a replica is given. */
  join(cluster: string, host?: string, replica?: RegistryReplica): Agent {
    const agent = this.#population.join(this.issuer, cluster, host, replica);
    agent.membership.say('JOIN');
    this.#startAgent(agent);
    const first = agent.membership.full();
    for (const { id } of this.gateways) this.#tunnels.record(agent, id, [first]);
    return agent;
  }

  /** The owner publishes an update, to its core and through its tunnels. */
  say(agent: Agent, state: SessionState, changesPayload = false): void {
    this.tell(agent, [agent.membership.say(state, changesPayload)]);
  }

  tell(agent: Agent, updates: Update[]): void {
    agent.node.take({ type: 'local', updates });
    for (const { id } of this.gateways) this.#tunnels.record(agent, id, updates);
  }

  /**
   * A session ends like an exiting process: it publishes LEFT, closes its channels, and another begins on the same
   * host.
   */
  rejoin(agent: Agent): Agent {
    this.say(agent, 'LEFT');
    this.clock.after(5, () => this.#vanish(agent));
    const next = this.join(agent.cluster, agent.host, agent.node.replica);
    next.hidden = agent.hidden;
    this.say(next, 'SERVING');
    return next;
  }

  /** kill -9: its machine closes its connections. */
  kill(agent: Place): void {
    this.#vanish(agent);
  }

  #vanish(agent: Place): void {
    if (agent.node.status === 'dead') return;
    agent.node.kill();
    this.#links.end(agent);
    if (agent.kind === 'agent') for (const gateway of this.gateways) this.#tunnels.close(agent, gateway.id);
    else for (const other of this.agents) other.tunnels.set(agent.id, false);
  }

  /** The machine is gone: nothing is closed. */
  powerOff(agent: Agent): void {
    agent.node.kill();
    for (const gateway of this.gateways)
      this.clock.after(TUNNEL_TIMEOUT_MS, () => this.#tunnels.close(agent, gateway.id));
  }

  /** A gateway's object returns: from its storage and memory, or with nothing. */
  restartGateway(gateway: Gateway, keeps: 'all' | 'nothing'): Gateway {
    const memory = keeps === 'all' ? saveState(gateway.node.state) : undefined;
    this.kill(gateway);
    this.gateways.splice(this.gateways.indexOf(gateway), 1);
    const replica = keeps === 'all' ? gateway.node.replica : undefined;
    const next = this.#population.addGateway(gateway.issuer, replica, memory);
    next.node.take({ type: 'start' });
    for (const agent of this.agents) {
      if (agent.node.status === 'dead') continue;
      this.clock.after(this.rng() * 3000, () => {
        this.#tunnels.open(agent, next.id);
        this.#tunnels.record(agent, next.id, [agent.membership.full()]);
      });
    }
    return next;
  }

  openTunnels(agent: Agent): void {
    for (const { id } of this.gateways) {
      this.#tunnels.open(agent, id);
      this.#tunnels.record(agent, id, [agent.membership.full()]);
    }
  }

  closeTunnels(agent: Agent): void {
    for (const { id } of this.gateways) this.#tunnels.close(agent, id);
  }

  /**
   * Hosts that cannot reach each other; channels stay open and drop all messages, tunnels end after their heartbeat.
   */
  cut(cut: (from: string, to: string) => boolean): void {
    this.network.cut = cut;
    this.clock.after(TUNNEL_TIMEOUT_MS, () => {
      for (const agent of this.agents)
        for (const gateway of this.gateways)
          if (this.#places.isCut(agent, gateway)) this.#tunnels.close(agent, gateway.id);
    });
  }

  /** The cut ends. */
  heal(): void {
    this.network.cut = () => false;
    this.#links.resetBroken();
    for (const agent of this.agents) {
      if (agent.node.status === 'dead') continue;
      for (const { id } of this.gateways) {
        if (agent.tunnels.get(id) === true) continue;
        this.clock.after(this.rng() * 2000, () => {
          this.#tunnels.open(agent, id);
          this.#tunnels.record(agent, id, [agent.membership.full()]);
        });
      }
    }
  }

  /** True if the end of this session's tunnel has reached a gateway. */
  gatewayKnowsClosed(session: string): boolean {
    return this.#tunnels.knownClosed(session);
  }

  run(ms: number, stop?: () => boolean): void {
    this.clock.run(this.clock.now + ms, stop);
  }

  /** @returns milliseconds until `holds` returned true; undefined if it did not within `ms` */
  until(holds: () => boolean, ms: number, stepMs = 10): number | undefined {
    const from = this.clock.now;
    while (!holds()) {
      if (this.clock.now - from >= ms) return undefined;
      this.run(stepMs);
    }
    return this.clock.now - from;
  }

  #act(from: PeerId, node: SimNode, action: GossipAction, at: number): void {
    const agent = this.#places.byPeer.get(from);
    if (agent?.node !== node) return;
    this.listener(from, action, at);
    switch (action.type) {
      case 'send':
        return this.#links.send(agent, action.peer, action.bytes, at);
      case 'dial':
        return this.clock.at(at, () => this.#links.dial(agent, action.peer));
      case 'hangUp':
        this.told.push({ at, node: from, action });
        return this.#links.hangUp(agent, action.peer);
      case 'askGateway':
        return this.clock.at(at, () => this.#tunnels.ask(agent, action.target));
      case 'evict':
        this.told.push({ at, node: from, action });
        if (agent.kind === 'gateway') agent.node.take({ type: 'local', updates: [agent.issuer.evict(action.session)] });
        return;
      case 'liveness':
      case 'ended':
      case 'notice':
        this.told.push({ at, node: from, action });
        return;
      case 'changed':
      case 'timer':
        return;
    }
  }

  /** True if a gateway would route to it. */
  routable(gateway: Gateway, session: string): boolean {
    const agent = this.#places.byPeer.get(session);
    const tunnel = agent?.kind === 'agent' && agent.tunnels.get(gateway.id) === true;
    const entry = gateway.node.replica.get(session);
    return tunnel && entry?.state === 'SERVING' && livenessOf(gateway.node.state, session) === 'alive';
  }

  running(): Agent[] {
    return this.agents.filter(({ node }) => node.status === 'running');
  }

  /** Roots of all running replicas, for comparison. */
  fingerprint(replica: RegistryReplica): string {
    return this.#population.issuers
      .map(({ id }) => {
        const { live, left } = replica.fingerprint(id);
        return `${live.toString(16)}/${left.toString(16)}`;
      })
      .join(' ');
  }

  agree(): boolean {
    const all = [...this.running(), ...this.gateways.filter(({ node }) => node.status === 'running')];
    return new Set(all.map(({ node }) => this.fingerprint(node.replica))).size <= 1;
  }
}

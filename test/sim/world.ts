/**
 * Clusters of agents and their gateways in virtual time. Everything that decides is real (shared/gossip, shared/lattice); what is made up is
 * the network, the CPU, the signatures and the tunnels, whose messages are counted as the agents' own.
 */
import {
  type Action,
  type GossipMemory,
  type GossipOptions,
  livenessOf,
  type PeerId,
  remember,
} from '../../shared/gossip/index.ts';
import { keyName } from '../../shared/lattice/certificate.ts';
import type { Lifecycle } from '../../shared/lattice/node.ts';
import { Replica } from '../../shared/lattice/replica.ts';
import type { Update } from '../../shared/lattice/update.ts';
import { Clock } from './clock.ts';
import { standInCrypto, standInSigner } from './crypto.ts';
import { EPOCH_S, Issuer, type Membership } from './issuer.ts';
import { Links } from './links.ts';
import { DEFAULT_NETWORK, Network, type NetworkOptions } from './network.ts';
import { SimNode } from './node.ts';
import { type Agent, type Gateway, type Place, Places } from './places.ts';
import { fork, type Rng, seeded } from './random.ts';
import { Tunnels } from './tunnels.ts';

export type { Agent } from './places.ts';

export interface WorldOptions {
  seed: number;
  /** Agents per cluster. */
  clusters: number[];
  gateways: number;
  network: Partial<NetworkOptions>;
  gossip: Partial<GossipOptions>;
  stalls: boolean;
  /** Agents on one machine. */
  perHost: number;
  /** What the i-th agent's clock is off by, ms. */
  skew: (agent: number) => number;
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

/** How long a tunnel lives after its path is cut. */
const TUNNEL_TIMEOUT_MS = 20_000;

export interface Told {
  at: number;
  node: string;
  action: Action;
}

export class World {
  readonly clock = new Clock();
  readonly options: WorldOptions;
  readonly crypto = standInCrypto();
  readonly network: Network;
  readonly rng: Rng;
  readonly issuers: Issuer[] = [];
  readonly agents: Agent[];
  readonly gateways: Gateway[];
  readonly #places: Places;
  readonly #links: Links;
  readonly #tunnels: Tunnels;
  /** Every notable action, in order; tests read it. */
  readonly told: Told[] = [];
  /** Hears each action with the virtual time at which it took effect. */
  listener: (peer: PeerId, action: Action, at: number) => void = () => {};
  #hosts = 0;
  /** What everybody knows at the beginning. */
  readonly #founding: Replica;

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
    for (let i = 0; i < Math.max(1, this.options.gateways); i++) this.issuers.push(new Issuer(this.crypto, this.rng));
    this.#founding = this.replica();
    // Worlds begin settled: everybody knows everybody.
    const members = this.options.clusters.flatMap((size, c) => {
      const issuer = this.#issuer(c % this.issuers.length);
      return Array.from({ length: size }, () => this.#admit(issuer, `c${c}`, this.#newHost()));
    });
    for (const member of members) {
      member.say('SERVING');
      this.#founding.load(member.full());
    }
    for (let i = 0; i < this.options.gateways; i++) this.#addGateway(this.#issuer(i), undefined, this.#founding.fork());
    for (const member of members) this.#embody(member, this.#founding.fork());
    for (const gateway of this.gateways) gateway.node.take({ type: 'start' });
    for (const agent of this.agents) this.#startAgent(agent);
  }

  #issuer(i: number): Issuer {
    const issuer = this.issuers[i];
    if (issuer === undefined) throw new Error(`no issuer ${i}`);
    return issuer;
  }

  get issuer(): Issuer {
    return this.#issuer(0);
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

  /** Seconds since 1970. */
  get nowS(): number {
    return Math.floor(EPOCH_S + this.clock.now / 1000);
  }

  replica(): Replica {
    const ids = new Set(this.issuers.map((issuer) => issuer.id));
    return new Replica({ crypto: this.crypto, accepts: (issuer) => ids.has(issuer) });
  }

  #addGateway(issuer: Issuer, memory: GossipMemory | undefined, replica = this.replica()): Gateway {
    const id = `gw:${keyName(issuer.gateway.publicKey)}`;
    const host = `gateway-${id.slice(3, 9)}`;
    const node = new SimNode({
      name: host,
      self: { kind: 'gateway', id, issuer: issuer.id },
      replica,
      crypto: this.crypto,
      signer: undefined,
      options: this.options.gossip,
      memory,
      clock: this.clock,
      rng: fork(this.rng),
      stalls: this.options.stalls,
      onAction: (from, action, at) => this.#act(id, from, action, at),
    });
    const gateway: Gateway = { kind: 'gateway', node, id, host, issuer, hidden: false };
    this.#places.add(gateway);
    return gateway;
  }

  #newHost(): string {
    return `host-${Math.floor(this.#hosts++ / this.options.perHost)}`;
  }

  #admit(issuer: Issuer, cluster: string, host: string): Membership {
    return issuer.admit({ provider: 'lab', cluster, birth: this.nowS }, standInSigner(this.rng), host);
  }

  #embody(membership: Membership, replica: Replica): Agent {
    const { session, signer, cluster, host } = membership;
    const node = new SimNode({
      name: session.slice(0, 6),
      self: { kind: 'agent', session, cluster, host },
      replica,
      crypto: this.crypto,
      signer,
      options: this.options.gossip,
      clock: this.clock,
      rng: fork(this.rng),
      stalls: this.options.stalls,
      skewMs: this.options.skew(this.agents.length),
      onAction: (from, action, at) => this.#act(session, from, action, at),
    });
    const agent: Agent = { kind: 'agent', node, membership, host, cluster, hidden: false, tunnels: new Map() };
    this.#places.add(agent);
    return agent;
  }

  #startAgent(agent: Agent): void {
    agent.node.take({ type: 'start' });
    agent.node.take({ type: 'local', updates: [agent.membership.full()] });
    for (const { id } of this.gateways) this.#tunnels.open(agent, id);
  }

  /** A new agent with a fresh session; it knows nobody unless a replica is given. */
  join(cluster: string, host = this.#newHost(), replica = this.replica()): Agent {
    const agent = this.#embody(this.#admit(this.issuer, cluster, host), replica);
    agent.membership.say('JOIN');
    this.#startAgent(agent);
    const first = agent.membership.full();
    for (const { id } of this.gateways) this.#tunnels.record(agent, id, [first]);
    return agent;
  }

  /** The owner says something new, to its core and up its tunnels. */
  say(agent: Agent, state: Lifecycle, changesPayload = false): void {
    this.tell(agent, [agent.membership.say(state, changesPayload)]);
  }

  tell(agent: Agent, updates: Update[]): void {
    agent.node.take({ type: 'local', updates });
    for (const { id } of this.gateways) this.#tunnels.record(agent, id, updates);
  }

  /** A session ends as a process exits: it says LEFT, closes its channels, and another begins on the same host. */
  rejoin(agent: Agent): Agent {
    this.say(agent, 'LEFT');
    this.clock.after(5, () => this.#vanish(agent));
    const next = this.join(agent.cluster, agent.host, agent.node.replica);
    next.hidden = agent.hidden;
    this.say(next, 'SERVING');
    return next;
  }

  /** kill -9: its machine closes what it had open. */
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

  /** A gateway's object comes back: from its storage and memory, or with nothing. */
  restartGateway(gateway: Gateway, keeps: 'all' | 'nothing'): Gateway {
    const memory = keeps === 'all' ? remember(gateway.node.state) : undefined;
    this.kill(gateway);
    this.gateways.splice(this.gateways.indexOf(gateway), 1);
    const next = this.#addGateway(gateway.issuer, memory, keeps === 'all' ? gateway.node.replica : this.replica());
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

  /** Hosts that cannot talk; channels stay open and swallow what is sent, tunnels end after their heartbeat. */
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

  /** Whether the end of this session's tunnel has reached a gateway. */
  gatewayKnowsClosed(session: string): boolean {
    return this.#tunnels.knownClosed(session);
  }

  run(ms: number, stop?: () => boolean): void {
    this.clock.run(this.clock.now + ms, stop);
  }

  /** @returns ms until `holds` did, undefined if not within `ms` */
  until(holds: () => boolean, ms: number, stepMs = 10): number | undefined {
    const from = this.clock.now;
    while (!holds()) {
      if (this.clock.now - from >= ms) return undefined;
      this.run(stepMs);
    }
    return this.clock.now - from;
  }

  #act(from: PeerId, node: SimNode, action: Action, at: number): void {
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
      case 'askRelay':
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

  /** Whether a gateway would route to it. */
  routable(gateway: Gateway, session: string): boolean {
    const agent = this.#places.byPeer.get(session);
    const tunnel = agent?.kind === 'agent' && agent.tunnels.get(gateway.id) === true;
    const entry = gateway.node.replica.get(session);
    return tunnel && entry?.state === 'SERVING' && livenessOf(gateway.node.state, session) === 'alive';
  }

  running(): Agent[] {
    return this.agents.filter(({ node }) => node.status === 'running');
  }

  /** Roots of all running replicas, to be compared. */
  fingerprint(replica: Replica): string {
    return this.issuers
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

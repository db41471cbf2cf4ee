/** The members of a world: issuers, gateways and agents are created and placed here, but not started. */
import type { GossipAction, GossipMemory, GossipOptions, PeerId } from '../../shared/gossip/index.ts';
import { keyName } from '../../shared/lattice/gateway-certificate.ts';
import { RegistryReplica } from '../../shared/lattice/registry-replica.ts';
import { type CountingCrypto, standInSigner } from './crypto.ts';
import { EPOCH_S, Issuer, type Membership } from './issuer.ts';
import { SimNode } from './node.ts';
import type { Agent, Gateway, Places } from './places.ts';
import { fork, type Rng } from './random.ts';

export interface PopulationOptions {
  gateways: number;
  gossip: Partial<GossipOptions>;
  stalls: boolean;
  /** Agents on one machine. */
  perHost: number;
  /** Clock error of the i-th agent, in milliseconds. */
  skew: (agent: number) => number;
}

interface PopulationSetup {
  places: Places;
  crypto: CountingCrypto;
  rng: Rng;
  options: PopulationOptions;
  /** Gets each action of a core, and the time at which its CPU had finished it. */
  act(peer: PeerId, node: SimNode, action: GossipAction, at: number): void;
}

export class Population {
  readonly issuers: Issuer[] = [];
  readonly #setup: PopulationSetup;
  #hosts = 0;

  constructor(setup: PopulationSetup) {
    this.#setup = setup;
    const { options, crypto, rng } = setup;
    for (let i = 0; i < Math.max(1, options.gateways); i++) this.issuers.push(new Issuer(crypto, rng));
  }

  /** Worlds begin settled: all members know each other. `clusters`: agents in each. */
  settle(clusters: readonly number[]): void {
    /** The initial knowledge of all members. */
    const founding = this.#replica();
    const members = clusters.flatMap((size, c) => {
      const issuer = this.issuer(c % this.issuers.length);
      return Array.from({ length: size }, () => this.#admit(issuer, `c${c}`, this.#newHost()));
    });
    for (const member of members) {
      member.say('SERVING');
      founding.load(member.full());
    }
    for (let i = 0; i < this.#setup.options.gateways; i++) this.addGateway(this.issuer(i), founding.fork());
    for (const member of members) this.#embody(member, founding.fork());
  }

  issuer(i: number): Issuer {
    const issuer = this.issuers[i];
    if (issuer === undefined) throw new Error(`no issuer ${i}`);
    return issuer;
  }

  /** An agent with a fresh session; it knows no other node unless a replica is given. */
  join(issuer: Issuer, cluster: string, host = this.#newHost(), replica = this.#replica()): Agent {
    return this.#embody(this.#admit(issuer, cluster, host), replica);
  }

  addGateway(issuer: Issuer, replica = this.#replica(), memory?: GossipMemory): Gateway {
    const { places, crypto, rng, options, act } = this.#setup;
    const id = `gw:${keyName(issuer.gateway.publicKey)}`;
    const host = `gateway-${id.slice(3, 9)}`;
    const node = new SimNode({
      name: host,
      self: { kind: 'gateway', id, issuer: issuer.id },
      replica,
      crypto,
      signer: undefined,
      options: options.gossip,
      memory,
      clock: places.clock,
      rng: fork(rng),
      stalls: options.stalls,
      onAction: (from, action, at) => act(id, from, action, at),
    });
    const gateway: Gateway = { kind: 'gateway', node, id, host, issuer, hidden: false };
    places.add(gateway);
    return gateway;
  }

  #embody(membership: Membership, replica: RegistryReplica): Agent {
    const { places, crypto, rng, options, act } = this.#setup;
    const { session, signer, cluster, host } = membership;
    const node = new SimNode({
      name: session.slice(0, 6),
      self: { kind: 'agent', session, cluster, host },
      replica,
      crypto,
      signer,
      options: options.gossip,
      clock: places.clock,
      rng: fork(rng),
      stalls: options.stalls,
      skewMs: options.skew(places.agents.length),
      onAction: (from, action, at) => act(session, from, action, at),
    });
    const agent: Agent = { kind: 'agent', node, membership, host, cluster, hidden: false, tunnels: new Map() };
    places.add(agent);
    return agent;
  }

  #admit(issuer: Issuer, cluster: string, host: string): Membership {
    const { places, rng } = this.#setup;
    const birth = Math.floor(EPOCH_S + places.clock.now / 1000);
    return issuer.admit({ provider: 'lab', cluster, birth }, standInSigner(rng), host);
  }

  #replica(): RegistryReplica {
    const ids = new Set(this.issuers.map((issuer) => issuer.id));
    return new RegistryReplica({ crypto: this.#setup.crypto, accepts: (issuer) => ids.has(issuer) });
  }

  #newHost(): string {
    return `host-${Math.floor(this.#hosts++ / this.#setup.options.perHost)}`;
  }
}

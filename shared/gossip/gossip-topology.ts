/**
 * Chooses an agent's channels: to its ring neighbors, to a few random members, and to gateways if it is a delegate, has
 * no neighbor, or was drawn as a volunteer.
 */

import { fnv1a } from '../text/hash.ts';
import { clusterRing, type GossipContext, withJitter } from './gossip-context.ts';
import type { PeerId } from './gossip-events.ts';
import type { PeerState } from './peer-state.ts';

/** Maximum number of members on one side of the ring that are examined in the search for neighbors. */
export const RING_WALK_MAX = 24;
const GATEWAYS_MAX = 64;

/** What the topology needs from the open channels. */
interface OpenChannels {
  readonly open: ReadonlyMap<PeerId, PeerState>;
  /** The time before which the peer must not be dialed. */
  failedUntil(id: PeerId): number;
  /** Called when the wanted channels have changed. */
  changed(): void;
}

export class GossipTopology {
  readonly #context: GossipContext;
  readonly #channels: OpenChannels;
  /** Random members to which this node keeps a channel. At most `randomLinks`. */
  readonly #random = new Set<PeerId>();
  /** Gateways that have accepted this session on a tunnel. */
  #gateways: readonly PeerId[] = [];
  readonly #ranks = new Map<PeerId, number>();
  /** True if this member has no neighbor. */
  #isIsolated = false;
  /** True if this member was drawn as a volunteer because its cluster may be split. */
  #volunteer = false;
  readonly #isReachable: (peer: PeerId) => boolean;

  /** @param isReachable returns false if the last direct probe of this peer failed */
  constructor(context: GossipContext, channels: OpenChannels, isReachable: (peer: PeerId) => boolean) {
    this.#context = context;
    this.#channels = channels;
    this.#isReachable = isReachable;
  }

  start(): void {
    const { timerQueue, now, options } = this.#context;
    const rotate = () => {
      const [oldest] = this.#random;
      if (oldest !== undefined && this.#isLarge()) this.#random.delete(oldest);
      this.#channels.changed();
      timerQueue.set('rotate', this.#context.now + withJitter(this.#context, options.rotateMs), rotate);
    };
    timerQueue.set('rotate', now + withJitter(this.#context, options.rotateMs), rotate);
    this.watchLoneliness();
    this.#watchIslands(0);
  }

  /**
   * If many neighbors are unreachable, the cluster may be split, and all delegates may be in the other part. So some
   * members of each part open channels to the gateways, which send each of them all updates. These volunteers are drawn
   * at random, again each minute, so that only a few members of a large cluster do this.
   */
  #watchIslands(seen: number): void {
    const { timerQueue, now, options, rng } = this.#context;
    timerQueue.set('island', now + withJitter(this.#context, options.islandMs), () => {
      const ring = clusterRing(this.#context);
      const expected = this.#isLarge() ? [...this.#around(options.ringReach)] : [...(ring ?? [])];
      const others = expected.filter((id) => id !== this.#context.me);
      const missing = others.filter((id) => !this.#channels.open.has(id) || !this.#isReachable(id)).length;
      const island = missing >= 2 && missing >= options.islandShare * others.length;
      const was = this.#volunteer;
      const drawn =
        island && (seen % options.islandRounds === 0 ? rng() < options.volunteers / (ring?.size ?? 1) : was);
      this.#setIsolated(this.#isIsolated, drawn);
      this.#watchIslands(island ? seen + 1 : 0);
    });
  }

  #setIsolated(isIsolated: boolean, volunteer: boolean): void {
    const was = this.#isIsolated || this.#volunteer;
    this.#isIsolated = isIsolated;
    this.#volunteer = volunteer;
    if (was === (isIsolated || volunteer)) return;
    this.#channels.changed();
    for (const { id, gateway } of this.#channels.open.values())
      if (gateway) this.#context.out.send(id, { type: 'apart', apart: !was });
  }

  #sendIsolated(gateway: PeerId): void {
    if (this.#isIsolated || this.#volunteer) this.#context.out.send(gateway, { type: 'apart', apart: true });
  }

  *#around(reach: number): Generator<PeerId> {
    for (const step of [1, -1] as const) {
      let taken = 0;
      for (const id of clusterRing(this.#context)?.from(this.#context.me, step) ?? []) {
        if (++taken > reach) break;
        yield id;
      }
    }
  }

  /** Call when a channel has opened. */
  opened(peer: PeerState): void {
    if (peer.gateway) this.#sendIsolated(peer.id);
    else this.#setIsolated(false, this.#volunteer);
  }

  isRandom(id: PeerId): boolean {
    return this.#random.has(id);
  }

  forget(id: PeerId): void {
    this.#random.delete(id);
  }

  setGateways(gateways: readonly PeerId[]): void {
    this.#gateways = gateways.slice(0, GATEWAYS_MAX);
    this.#rank();
  }

  /**
   * Ranks this agent after a short delay. Calls during the delay are merged, because ranking visits all members, and a
   * thousand may join in a second.
   */
  rankSoon(): void {
    const { timerQueue, now } = this.#context;
    if (this.#gateways.length > 0 && !timerQueue.has('rank')) timerQueue.set('rank', now + 200, () => this.#rank());
  }

  /**
   * Calculates, for each gateway, this agent's rank among the members of its cluster. Counts only up to `delegates`.
   */
  #rank(): void {
    const ring = clusterRing(this.#context);
    const { me, options } = this.#context;
    this.#ranks.clear();
    for (const gateway of this.#gateways) {
      const mine = delegateWeight(me, gateway);
      let rank = 0;
      for (const other of ring ?? []) {
        if (rank >= options.delegates) break;
        if (other !== me && delegateWeight(other, gateway) < mine) rank++;
      }
      this.#ranks.set(gateway, rank);
    }
    this.#channels.changed();
  }

  /**
   * This agent's rank for `gateway`. An agent with a rank below `delegates` is a delegate; higher ranks are not told
   * apart. The agent with rank 0 sends its cluster's updates to that gateway.
   */
  rankFor(gateway: PeerId): number {
    return this.#ranks.get(gateway) ?? Number.POSITIVE_INFINITY;
  }

  /** The ring neighbors with which this member keeps a channel open. */
  near(): Set<PeerId> {
    const near = new Set<PeerId>();
    const { me, now, options } = this.#context;
    for (const step of [1, -1] as const) {
      let taken = 0;
      let seen = 0;
      for (const id of clusterRing(this.#context)?.from(me, step) ?? []) {
        if (taken >= options.ringReach || ++seen > RING_WALK_MAX) break;
        // A member that cannot be dialed now does not count as a neighbor. The next member takes its place.
        if (!this.#channels.open.has(id) && this.#channels.failedUntil(id) > now) continue;
        near.add(id);
        taken++;
      }
    }
    return near;
  }

  #isLarge(): boolean {
    return (clusterRing(this.#context)?.size ?? 0) > this.#context.options.fullMesh;
  }

  targets(): Set<PeerId> {
    const { me, options } = this.#context;
    const ring = clusterRing(this.#context);
    const targets = this.#isLarge() || ring === undefined ? this.near() : new Set([...ring].filter((id) => id !== me));
    if (this.#isLarge()) for (const id of this.#chooseRandom(targets)) targets.add(id);
    for (const gateway of this.#gateways) {
      if (this.#isIsolated || this.#volunteer || this.rankFor(gateway) < options.delegates) targets.add(gateway);
    }
    return targets;
  }

  #chooseRandom(near: ReadonlySet<PeerId>): ReadonlySet<PeerId> {
    const ring = clusterRing(this.#context);
    const { me, now, options, rng } = this.#context;
    for (const id of this.#random) {
      const fails = this.#channels.failedUntil(id) > now && !this.#channels.open.has(id);
      if (near.has(id) || fails || ring?.has(id) !== true) this.#random.delete(id);
    }
    for (let tries = 0; ring !== undefined && tries < 8 && this.#random.size < options.randomLinks; tries++) {
      const id = ring.at(Math.floor(rng() * ring.size));
      if (id === undefined || id === me || near.has(id) || this.#channels.open.has(id)) continue;
      if (this.#channels.failedUntil(id) <= now) this.#random.add(id);
    }
    return this.#random;
  }

  watchLoneliness(): void {
    const { timerQueue, now, options, self } = this.#context;
    if (self.kind === 'gateway' || timerQueue.has('lonely')) return;
    timerQueue.set('lonely', now + options.lonelyMs * (1 + this.#context.rng()), () => {
      this.#setIsolated(![...this.#channels.open.values()].some(({ gateway }) => !gateway), this.#volunteer);
    });
  }
}

/**
 * Orders a cluster's agents by a hash of both ids, so that different gateways have different delegates. Ids are already
 * hashes, so a few of their characters suffice.
 */
export function delegateWeight(session: string, gateway: PeerId): number {
  const value = fnv1a(session.slice(0, 8) + gateway.slice(3, 11));
  return (value ^ (value >>> 15)) >>> 0;
}

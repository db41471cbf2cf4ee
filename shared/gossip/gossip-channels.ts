/**
 * The open channels, with their dials, backoff and bans. Dials missing channels, and closes those that are not needed.
 */

import { backoffMs } from '../timing/backoff.ts';
import { clusterRing, type GossipContext, isGateway, memberEntry, shuffle, withJitter } from './gossip-context.ts';
import type { HangUpReason, PeerId } from './gossip-events.ts';
import { GossipTopology, RING_WALK_MAX } from './gossip-topology.ts';
import { newPeerState, type PeerState } from './peer-state.ts';

const BANS_MAX = 1024;
/** A dial that has had no result for this long is considered lost. */
const DIAL_LOST_MS = 60_000;

export class GossipChannels {
  /** Open channels. An agent has at most `peersMax` and the channels that it dialed. */
  readonly open = new Map<PeerId, PeerState>();
  readonly #context: GossipContext;
  /** Start of each dial in progress. Bounded by `dialsMax`. */
  readonly #dialling = new Map<PeerId, number>();
  /**
   * Number of failed dials of each peer, and the time before which the peer is not dialed again. Holds only members and
   * gateways. A member is removed when it leaves.
   */
  readonly #failed = new Map<PeerId, { times: number; until: number }>();
  /**
   * Sessions with which a channel has been open. A failed dial is evidence against a session only if it is in this set.
   * Removed when the session leaves.
   */
  readonly #met = new Set<PeerId>();
  readonly #banned = new Map<PeerId, number>();
  #dirty = true;
  readonly topology: GossipTopology;

  /** @param isReachable tells whether direct probes of this peer succeed */
  constructor(context: GossipContext, isReachable: (peer: PeerId) => boolean) {
    this.#context = context;
    const channels = {
      open: this.open,
      failedUntil: (id: PeerId) => this.#failedUntil(id),
      changed: () => this.#markDirty(),
    };
    this.topology = new GossipTopology(context, channels, isReachable);
  }

  start(): void {
    if (this.#context.self.kind === 'agent') this.topology.start();
  }

  opened(id: PeerId, inbound: boolean): PeerState | undefined {
    const { now, options } = this.#context;
    this.#dialling.delete(id);
    const bannedUntil = this.#banned.get(id) ?? Number.NEGATIVE_INFINITY;
    const peer = newPeerState(id, inbound, this.#context);
    this.open.set(id, peer);
    if (bannedUntil > now) {
      this.hangUp(id, 'banned', bannedUntil - now);
      return undefined;
    }
    if (
      this.open.size > options.peersMax &&
      inbound &&
      this.#context.self.kind === 'agent' &&
      !this.topology.targets().has(id)
    ) {
      this.hangUp(id, 'spare');
      return undefined;
    }
    this.#met.add(id);
    this.#dirty = true;
    this.topology.opened(peer);
    return peer;
  }

  /** @returns true if the closed channel was still wanted */
  closed(id: PeerId): boolean {
    const peer = this.open.get(id);
    const wanted = peer !== undefined && this.#context.self.kind === 'agent' && this.topology.targets().has(id);
    this.open.delete(id);
    this.#context.out.forget(id);
    // If a channel closes soon after it opened, the peer is redialed as rarely as a peer that cannot be dialed.
    // Otherwise two nodes that disagree would reconnect forever.
    if (peer !== undefined && this.#context.now - peer.openedAt < this.#context.options.spareMs) this.#noteFailure(id);
    else if (peer !== undefined) this.#failed.delete(id);
    this.#dirty = true;
    if (this.#context.self.kind === 'agent') this.topology.watchLoneliness();
    return wanted;
  }

  /** @returns true if the peer had been reached before, so that the failure is evidence about it */
  dialFailed(id: PeerId): boolean {
    this.#dialling.delete(id);
    if (this.open.has(id)) return false;
    this.#noteFailure(id);
    this.#dirty = true;
    return this.#met.has(id);
  }

  #noteFailure(id: PeerId): void {
    const { now, options } = this.#context;
    const times = (this.#failed.get(id)?.times ?? 0) + 1;
    const wait = backoffMs(times - 1, { minMs: options.redialMs, maxMs: options.redialMaxMs });
    this.#failed.set(id, { times, until: now + withJitter(this.#context, wait) });
  }

  hangUp(id: PeerId, reason: HangUpReason, banMs = 0): void {
    const { out, now } = this.#context;
    this.open.delete(id);
    this.topology.forget(id);
    out.forget(id);
    if (banMs > 0) {
      if (this.#banned.size >= BANS_MAX) this.#banned.clear();
      this.#banned.set(id, now + banMs);
      // This node does not dial the banned peer either, because the channel would be closed immediately.
      this.#failed.set(id, { times: 1, until: now + banMs });
    }
    out.act({ type: 'hangUp', peer: id, reason, banMs });
    this.#dirty = true;
    if (this.#context.self.kind === 'agent') this.topology.watchLoneliness();
  }

  setGateways(gateways: readonly PeerId[]): void {
    // A tunnel has just opened, so earlier failures to dial its gateway no longer matter.
    for (const gateway of gateways) this.#failed.delete(gateway);
    this.topology.setGateways(gateways);
  }

  /** Call when members have joined or left. @param gone a session that has left for good */
  membersChanged(gone?: string): void {
    this.#dirty = true;
    if (gone !== undefined) {
      this.#failed.delete(gone);
      this.#met.delete(gone);
      this.topology.forget(gone);
      this.#banned.delete(gone);
      if (this.open.has(gone)) this.hangUp(gone, 'left');
    }
    this.topology.rankSoon();
  }

  agents(): PeerState[] {
    return [...this.open.values()].filter((peer) => !peer.gateway);
  }

  gateways(): PeerState[] {
    return [...this.open.values()].filter((peer) => peer.gateway);
  }

  met(id: PeerId): boolean {
    return this.#met.has(id);
  }

  /** The nearest member on that side of the ring that has an open channel and for which `usable` holds. */
  neighbour(step: 1 | -1, usable: (peer: PeerId) => boolean = () => true): PeerId | undefined {
    let seen = 0;
    for (const id of clusterRing(this.#context)?.from(this.#context.me, step) ?? []) {
      if (this.open.has(id) && usable(id)) return id;
      if (++seen >= RING_WALK_MAX) return undefined;
    }
    return undefined;
  }

  /** True if a dial was started or is in progress. */
  dial(id: PeerId): boolean {
    const { options, out } = this.#context;
    if (this.open.has(id) || (this.#banned.get(id) ?? Number.NEGATIVE_INFINITY) > this.#context.now) return false;
    if (this.#dialling.has(id)) return true;
    this.#forgetLostDials();
    const addresses = isGateway(id) ? [] : (memberEntry(this.#context, id)?.payload?.addresses ?? []);
    if (!isGateway(id) && addresses.length === 0) return false;
    if (this.#dialling.size >= options.dialsMax) return false;
    this.#dialling.set(id, this.#context.now);
    out.act({ type: 'dial', peer: id, addresses });
    return true;
  }

  /** The driver must answer each dial. If it lost some answers, they must not block all later dials. */
  #forgetLostDials(): void {
    const { now, options } = this.#context;
    if (this.#dialling.size < options.dialsMax) return;
    for (const [id, since] of this.#dialling) if (now - since > DIAL_LOST_MS) this.#dialling.delete(id);
  }

  /** Dials missing channels and closes those that are not needed. Runs at the end of each step. */
  maintain(): void {
    if (!this.#dirty || this.#context.self.kind === 'gateway') return;
    this.#dirty = false;
    const { timerQueue, now, me, options } = this.#context;
    const targets = this.topology.targets();
    let wakeAt = Number.POSITIVE_INFINITY;
    for (const id of targets) {
      if (this.open.has(id) || this.#dialling.has(id)) continue;
      const retryAt = this.#failedUntil(id);
      if (retryAt > now) {
        wakeAt = Math.min(wakeAt, retryAt);
      } else if (isGateway(id) || this.topology.isRandom(id) || me < id) {
        if (!this.dial(id)) wakeAt = Math.min(wakeAt, now + options.redialMs);
      } else if (!timerQueue.has(`yield:${id}`)) {
        timerQueue.set(`yield:${id}`, now + options.yieldMs, () => {
          if (this.topology.targets().has(id)) this.dial(id);
        });
      }
    }
    if (wakeAt < Number.POSITIVE_INFINITY) timerQueue.set('redial', wakeAt, () => this.#markDirty());
    this.#dropSpares(targets);
  }

  #markDirty(): void {
    this.#dirty = true;
  }

  #dropSpares(targets: ReadonlySet<PeerId>): void {
    const { timerQueue, now, options } = this.#context;
    let nextAt = Number.POSITIVE_INFINITY;
    for (const peer of this.open.values()) {
      // Only the side that dialed a channel closes it as unneeded.
      if (peer.inbound || targets.has(peer.id)) continue;
      const at = peer.openedAt + options.spareMs;
      if (at <= now) this.hangUp(peer.id, 'spare');
      else nextAt = Math.min(nextAt, at);
    }
    if (nextAt < Number.POSITIVE_INFINITY) timerQueue.set('spares', nextAt, () => this.#markDirty());
  }

  #failedUntil(id: PeerId): number {
    return this.#failed.get(id)?.until ?? Number.NEGATIVE_INFINITY;
  }

  /** Random open peers: members that are not ring neighbors first, neighbors only if there are too few others. */
  some(count: number, usable: (peer: PeerId) => boolean): PeerId[] {
    const near = this.topology.near();
    const { rng } = this.#context;
    const candidates = this.agents()
      .map((peer) => peer.id)
      .filter(usable);
    const far = shuffle(
      candidates.filter((id) => !near.has(id)),
      rng,
    ).slice(0, count);
    if (far.length === count) return far;
    const rest = shuffle(
      candidates.filter((id) => near.has(id)),
      rng,
    );
    return [...far, ...rest.slice(0, count - far.length)];
  }
}

/** Which peers there are, and which there should be: the ring, a few random ones, gateways for delegates; dials, backoff, spares. */
import { type Context, isGateway, memberEntry, ownRing, shuffle, spread } from './context.ts';
import { Bucket } from './limits.ts';
import type { HangUpReason, PeerId } from './types.ts';

export interface Peer {
  readonly id: PeerId;
  readonly gateway: boolean;
  readonly inbound: boolean;
  readonly openedAt: number;
  /** What it may send unasked. */
  readonly bytes: Bucket;
  readonly checks: Bucket;
  /** What it may send because we asked, and what it may make us ask for. */
  readonly asked: Bucket;
  readonly wants: Bucket;
  /** Roots that differ only in issuers that one of us does not list: no need to compare again. */
  settled: { mine: bigint; theirs: bigint } | undefined;
  /** At a gateway: it asked to be told whatever its cluster's delegates are told. */
  apart: boolean;
  /** When it last said anything. */
  heardAt: number;
  /** Updates that we asked it for and that may still come. */
  expected: number;
  /** When it was last told what others say of it, or of others. */
  toldAt: number;
}

/** Neighbours looked at on one side of the ring before those that cannot be dialled are accepted as missing. */
const WALK_MAX = 24;
const BANS_MAX = 1024;
const GATEWAYS_MAX = 64;

export class Channels {
  /** Bounded by `peersMax` and by what we dial ourselves. */
  readonly open = new Map<PeerId, Peer>();
  readonly #context: Context;
  /** Bounded by `dialsMax`. */
  readonly #dialling = new Set<PeerId>();
  /** Of members and gateways only; cleared as they leave. */
  readonly #failed = new Map<PeerId, { times: number; until: number }>();
  /** Sessions that were reached once: for them a dial that fails says something. Cleared as they leave. */
  readonly #met = new Set<PeerId>();
  /** At most `randomLinks`. */
  readonly #random = new Set<PeerId>();
  readonly #banned = new Map<PeerId, number>();
  /** Gateways that took this session in: as many as the operator lists. */
  #gateways: readonly PeerId[] = [];
  readonly #ranks = new Map<PeerId, number>();
  #dirty = true;
  /** No neighbour at all. */
  #lonely = false;
  /** Chosen by lot where many neighbours are missing. */
  #volunteer = false;
  /** Set by the core: whether direct probes of this peer succeed. */
  isReachable: (peer: PeerId) => boolean = () => true;

  constructor(context: Context) {
    this.#context = context;
  }

  start(): void {
    const { agenda, now, options } = this.#context;
    if (this.#context.self.kind === 'gateway') return;
    const rotate = () => {
      const [oldest] = this.#random;
      if (oldest !== undefined && this.#isLarge()) this.#random.delete(oldest);
      this.#dirty = true;
      agenda.set('rotate', this.#context.now + spread(this.#context, options.rotateMs), rotate);
    };
    agenda.set('rotate', now + spread(this.#context, options.rotateMs), rotate);
    this.#watchLoneliness();
    this.#watchIslands(0);
  }

  /**
   * Where many neighbours are out of reach the cluster may be in pieces, with all delegates in another: some of each piece then join the
   * gateways, which tell every one of them. By lot, and again each minute, so that a large cluster sends a few.
   */
  #watchIslands(seen: number): void {
    const { agenda, now, options, rng } = this.#context;
    agenda.set('island', now + spread(this.#context, options.islandMs), () => {
      const ring = ownRing(this.#context);
      const expected = this.#isLarge() ? [...this.#around(options.ringReach)] : [...(ring ?? [])];
      const others = expected.filter((id) => id !== this.#context.me);
      const missing = others.filter((id) => !this.open.has(id) || !this.isReachable(id)).length;
      const island = missing >= 2 && missing >= options.islandShare * others.length;
      const was = this.#volunteer;
      const drawn =
        island && (seen % options.islandRounds === 0 ? rng() < options.volunteers / (ring?.size ?? 1) : was);
      this.#setApart(this.#lonely, drawn);
      this.#watchIslands(island ? seen + 1 : 0);
    });
  }

  #setApart(lonely: boolean, volunteer: boolean): void {
    const was = this.#lonely || this.#volunteer;
    this.#lonely = lonely;
    this.#volunteer = volunteer;
    if (was === (lonely || volunteer)) return;
    this.#dirty = true;
    for (const { id } of this.gateways()) this.#context.out.send(id, { type: 'apart', apart: !was });
  }

  #sayApart(gateway: PeerId): void {
    if (this.#lonely || this.#volunteer) this.#context.out.send(gateway, { type: 'apart', apart: true });
  }

  *#around(reach: number): Generator<PeerId> {
    for (const step of [1, -1] as const) {
      let taken = 0;
      for (const id of ownRing(this.#context)?.from(this.#context.me, step) ?? []) {
        if (++taken > reach) break;
        yield id;
      }
    }
  }

  opened(id: PeerId, inbound: boolean): Peer | undefined {
    const { now, options } = this.#context;
    this.#dialling.delete(id);
    const bannedUntil = this.#banned.get(id) ?? Number.NEGATIVE_INFINITY;
    const peer: Peer = {
      id,
      gateway: isGateway(id),
      inbound,
      openedAt: now,
      bytes: new Bucket(options.peerBytesPerSecond, options.peerBurstBytes, now),
      checks: new Bucket(options.peerChecksPerSecond, options.peerBurstChecks, now),
      asked: new Bucket(options.askedBytesPerSecond, options.askedBurstBytes, now),
      wants: new Bucket(options.wantsPerSecond, options.burstWants, now),
      settled: undefined,
      apart: false,
      heardAt: now,
      expected: 0,
      toldAt: Number.NEGATIVE_INFINITY,
    };
    this.open.set(id, peer);
    if (bannedUntil > now) {
      this.hangUp(id, 'banned', bannedUntil - now);
      return undefined;
    }
    if (
      this.open.size > options.peersMax &&
      inbound &&
      this.#context.self.kind === 'agent' &&
      !this.#targets().has(id)
    ) {
      this.hangUp(id, 'spare');
      return undefined;
    }
    this.#met.add(id);
    this.#dirty = true;
    if (peer.gateway) this.#sayApart(id);
    else this.#setApart(false, this.#volunteer);
    return peer;
  }

  /** @returns whether a channel that we still wanted broke */
  closed(id: PeerId): boolean {
    const peer = this.open.get(id);
    const wanted = peer !== undefined && this.#context.self.kind === 'agent' && this.#targets().has(id);
    this.open.delete(id);
    this.#context.out.forget(id);
    // Who opens to close at once is called again as seldom as who does not open: else two nodes that disagree would never rest.
    if (peer !== undefined && this.#context.now - peer.openedAt < this.#context.options.spareMs) this.#noteFailure(id);
    else if (peer !== undefined) this.#failed.delete(id);
    this.#dirty = true;
    this.#watchLoneliness();
    return wanted;
  }

  /** @returns whether the peer had been reached before, so that failing now is news about it */
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
    const wait = Math.min(options.redialMaxMs, options.redialMs * 2 ** Math.min(times - 1, 16));
    this.#failed.set(id, { times, until: now + spread(this.#context, wait) });
  }

  hangUp(id: PeerId, reason: HangUpReason, banMs = 0): void {
    const { out, now } = this.#context;
    this.open.delete(id);
    this.#random.delete(id);
    out.forget(id);
    if (banMs > 0) {
      if (this.#banned.size >= BANS_MAX) this.#banned.clear();
      this.#banned.set(id, now + banMs);
      // Nor is it called from here: it would be let in only to be sent away.
      this.#failed.set(id, { times: 1, until: now + banMs });
    }
    out.act({ type: 'hangUp', peer: id, reason, banMs });
    this.#dirty = true;
    this.#watchLoneliness();
  }

  setGateways(gateways: readonly PeerId[]): void {
    this.#gateways = gateways.slice(0, GATEWAYS_MAX);
    // A tunnel has just opened: what failed before says nothing now.
    for (const gateway of this.#gateways) this.#failed.delete(gateway);
    this.rank();
  }

  /** Members came or went; `gone` for good. */
  membersChanged(gone?: string): void {
    this.#dirty = true;
    if (gone !== undefined) {
      this.#failed.delete(gone);
      this.#met.delete(gone);
      this.#random.delete(gone);
      this.#banned.delete(gone);
      if (this.open.has(gone)) this.hangUp(gone, 'left');
    }
    const { agenda, now } = this.#context;
    // Coalesced: ranking looks at all members, and a thousand may join in a second.
    if (this.#gateways.length > 0 && !agenda.has('rank')) agenda.set('rank', now + 200, () => this.rank());
  }

  /** Place of this agent among those of its cluster that could hold a channel to `gateway`. */
  rank(): void {
    const ring = ownRing(this.#context);
    const { me, options } = this.#context;
    this.#ranks.clear();
    for (const gateway of this.#gateways) {
      const mine = weight(me, gateway);
      let rank = 0;
      for (const other of ring ?? []) {
        if (rank >= options.delegates) break;
        if (other !== me && weight(other, gateway) < mine) rank++;
      }
      this.#ranks.set(gateway, rank);
    }
    this.#dirty = true;
  }

  /** 0: this agent speaks for its cluster. */
  rankFor(gateway: PeerId): number {
    return this.#ranks.get(gateway) ?? Number.POSITIVE_INFINITY;
  }

  agents(): Peer[] {
    return [...this.open.values()].filter((peer) => !peer.gateway);
  }

  gateways(): Peer[] {
    return [...this.open.values()].filter((peer) => peer.gateway);
  }

  met(id: PeerId): boolean {
    return this.#met.has(id);
  }

  /** Nearest open peer on that side of the ring for which `usable` holds. */
  neighbour(step: 1 | -1, usable: (peer: PeerId) => boolean = () => true): PeerId | undefined {
    let seen = 0;
    for (const id of ownRing(this.#context)?.from(this.#context.me, step) ?? []) {
      if (this.open.has(id) && usable(id)) return id;
      if (++seen >= WALK_MAX) return undefined;
    }
    return undefined;
  }

  /** Members that channels are kept to because of where they stand on the ring. */
  near(): Set<PeerId> {
    const near = new Set<PeerId>();
    const { me, now, options } = this.#context;
    for (const step of [1, -1] as const) {
      let taken = 0;
      let seen = 0;
      for (const id of ownRing(this.#context)?.from(me, step) ?? []) {
        if (taken >= options.ringReach || ++seen > WALK_MAX) break;
        // Who cannot be dialled now is no neighbour: the next one takes the place.
        if (!this.open.has(id) && this.#failedUntil(id) > now) continue;
        near.add(id);
        taken++;
      }
    }
    return near;
  }

  /** Whether a dial was begun or is under way. */
  dial(id: PeerId): boolean {
    const { options, out } = this.#context;
    if (this.open.has(id) || (this.#banned.get(id) ?? Number.NEGATIVE_INFINITY) > this.#context.now) return false;
    if (this.#dialling.has(id)) return true;
    const addresses = isGateway(id) ? [] : (memberEntry(this.#context, id)?.payload?.addresses ?? []);
    if (!isGateway(id) && addresses.length === 0) return false;
    if (this.#dialling.size >= options.dialsMax) return false;
    this.#dialling.add(id);
    out.act({ type: 'dial', peer: id, addresses });
    return true;
  }

  /** At the end of a step: dials what is missing, closes what is not needed. */
  maintain(): void {
    if (!this.#dirty || this.#context.self.kind === 'gateway') return;
    this.#dirty = false;
    const { agenda, now, me, options } = this.#context;
    const targets = this.#targets();
    let wakeAt = Number.POSITIVE_INFINITY;
    for (const id of targets) {
      if (this.open.has(id) || this.#dialling.has(id)) continue;
      const retryAt = this.#failedUntil(id);
      if (retryAt > now) {
        wakeAt = Math.min(wakeAt, retryAt);
      } else if (isGateway(id) || this.#random.has(id) || me < id) {
        if (!this.dial(id)) wakeAt = Math.min(wakeAt, now + options.redialMs);
      } else if (!agenda.has(`yield:${id}`)) {
        agenda.set(`yield:${id}`, now + options.yieldMs, () => {
          if (this.#targets().has(id)) this.dial(id);
        });
      }
    }
    if (wakeAt < Number.POSITIVE_INFINITY) agenda.set('redial', wakeAt, () => this.#markDirty());
    this.#dropSpares(targets);
  }

  #markDirty(): void {
    this.#dirty = true;
  }

  #dropSpares(targets: ReadonlySet<PeerId>): void {
    const { agenda, now, options } = this.#context;
    let nextAt = Number.POSITIVE_INFINITY;
    for (const peer of this.open.values()) {
      // The other side's dials are its own to close.
      if (peer.inbound || targets.has(peer.id)) continue;
      const at = peer.openedAt + options.spareMs;
      if (at <= now) this.hangUp(peer.id, 'spare');
      else nextAt = Math.min(nextAt, at);
    }
    if (nextAt < Number.POSITIVE_INFINITY) agenda.set('spares', nextAt, () => this.#markDirty());
  }

  #failedUntil(id: PeerId): number {
    return this.#failed.get(id)?.until ?? Number.NEGATIVE_INFINITY;
  }

  #isLarge(): boolean {
    return (ownRing(this.#context)?.size ?? 0) > this.#context.options.fullMesh;
  }

  #targets(): Set<PeerId> {
    const { me, options } = this.#context;
    const ring = ownRing(this.#context);
    const targets = this.#isLarge() || ring === undefined ? this.near() : new Set([...ring].filter((id) => id !== me));
    if (this.#isLarge()) for (const id of this.#chooseRandom(targets)) targets.add(id);
    for (const gateway of this.#gateways) {
      if (this.#lonely || this.#volunteer || this.rankFor(gateway) < options.delegates) targets.add(gateway);
    }
    return targets;
  }

  #chooseRandom(near: ReadonlySet<PeerId>): ReadonlySet<PeerId> {
    const ring = ownRing(this.#context);
    const { me, now, options, rng } = this.#context;
    for (const id of this.#random) {
      const fails = this.#failedUntil(id) > now && !this.open.has(id);
      if (near.has(id) || fails || ring?.has(id) !== true) this.#random.delete(id);
    }
    for (let tries = 0; ring !== undefined && tries < 8 && this.#random.size < options.randomLinks; tries++) {
      const id = ring.at(Math.floor(rng() * ring.size));
      if (id === undefined || id === me || near.has(id) || this.open.has(id)) continue;
      if (this.#failedUntil(id) <= now) this.#random.add(id);
    }
    return this.#random;
  }

  /** Random peers for a push: across the ring first, neighbours only where there are no others. */
  some(count: number, usable: (peer: PeerId) => boolean): PeerId[] {
    const near = this.near();
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

  #watchLoneliness(): void {
    const { agenda, now, options, self } = this.#context;
    if (self.kind === 'gateway' || agenda.has('lonely')) return;
    agenda.set('lonely', now + options.lonelyMs * (1 + this.#context.rng()), () => {
      this.#setApart(this.agents().length === 0, this.#volunteer);
    });
  }
}

/** Order of delegates: of hashes of both ids, so that gateways do not burden the same agents. Ids are hashes already. */
export function weight(session: string, gateway: PeerId): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < 8; i++) value = Math.imul(value ^ session.charCodeAt(i), 0x01000193);
  for (let i = 3; i < 11; i++) value = Math.imul(value ^ gateway.charCodeAt(i), 0x01000193);
  return (value ^ (value >>> 15)) >>> 0;
}

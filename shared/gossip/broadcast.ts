/**
 * Sends updates immediately: along the ring in both directions, to some members across it, and through gateways to
 * other clusters.
 */
import { TokenBucket } from '../collections/token-bucket.ts';
import type { Update } from '../lattice/registry-update.ts';
import { sessionItemId } from '../lattice/replica-entry.ts';
import type { BroadcastTree } from './broadcast-tree.ts';
import type { GossipChannels } from './gossip-channels.ts';
import { clusterRing, type GossipContext, isGateway } from './gossip-context.ts';
import type { PeerId, Suspicion } from './gossip-events.ts';
import { encodeMessagePart, type MessagePart } from './gossip-messages.ts';
import { delegateWeight } from './gossip-topology.ts';
import type { LivenessTable } from './liveness-table.ts';

type SuspicionOrRefutation = Extract<MessagePart, { type: 'suspicion' | 'refutation' }>;

/**
 * Maximum number of members of one cluster that a gateway informs in addition to the cluster's delegates. These members
 * have no neighbors or saw a split, and asked to be informed.
 */
const PIECES_MAX = 12;
const PASSES_MAX = 8192;
/**
 * A gateway skips a delegate that was silent for this many times `gatewayPaceMaxMs`, the longest interval between a
 * delegate's pings.
 */
const SILENT_PACES = 3;

/** The session and the cluster that an update is about. */
export interface UpdateSubject {
  /** Undefined if the update is not about one session: an issuer's statement about its keys concerns all members. */
  session: string | undefined;
  cluster: string | undefined;
}

export class Broadcast {
  readonly #context: GossipContext;
  readonly #channels: GossipChannels;
  readonly #livenessTable: LivenessTable;
  readonly #tree: BroadcastTree;
  readonly #onCheck: (gateway: PeerId) => void;
  /**
   * Limits how often updates are passed on, by the session that signed them. At PASSES_MAX entries the map is cleared.
   */
  readonly #forwardBuckets = new Map<string, TokenBucket>();

  /** @param onCheck called with a gateway when this node should compare with it */
  constructor(
    context: GossipContext,
    channels: GossipChannels,
    livenessTable: LivenessTable,
    tree: BroadcastTree,
    onCheck: (gateway: PeerId) => void,
  ) {
    this.#context = context;
    this.#channels = channels;
    this.#livenessTable = livenessTable;
    this.#tree = tree;
    this.#onCheck = onCheck;
  }

  /**
   * Passes on an update that was new here.
   * @param from the sender; undefined if the update started here
   */
  update(update: Update, about: UpdateSubject, from: PeerId | undefined): void {
    const isOwners = update.kind === 'entry' && update.eviction === undefined;
    if (isOwners && about.session !== undefined && !this.#mayForward(about.session)) return;
    const part = encodeMessagePart({ type: 'news', update });
    if (this.#context.self.kind === 'gateway') return this.#relay(part, about, from);
    if (about.session === undefined) this.#spread(part, from);
    else if (!this.#isSmall()) this.#tree.forward(part, about.session, from);
    else if (from !== undefined && !isGateway(from)) this.#askNextMember(about.session);
    else this.#spread(part, from);
    this.#sendToGateways(part, about, from);
  }

  #mayForward(origin: string): boolean {
    const { now, options } = this.#context;
    let bucket = this.#forwardBuckets.get(origin);
    if (bucket === undefined) {
      if (this.#forwardBuckets.size >= PASSES_MAX) this.#forwardBuckets.clear();
      bucket = new TokenBucket(options.passPerSecond, options.passBurst, now);
      this.#forwardBuckets.set(origin, bucket);
    }
    return bucket.take(1, now);
  }

  /** Passes on a suspicion or its refutation. @param session the suspected session */
  forward(part: SuspicionOrRefutation, session: string, from: PeerId | undefined): void {
    const origin = part.type === 'suspicion' ? part.suspicion.observer : session;
    if (!this.#mayForward(`suspicion ${origin}`)) return;
    const bytes = encodeMessagePart(part);
    const cluster = this.#context.replica.get(session)?.ticket.cluster;
    if (this.#context.self.kind === 'gateway') return this.#relay(bytes, { session, cluster }, from);
    this.#spread(bytes, from);
    this.#sendToGateways(bytes, { session, cluster }, from);
  }

  /** Informs the suspected session if there is a channel to it, wherever it is on the ring. */
  sendSuspicion(target: string, suspicion: Suspicion): void {
    if (this.#channels.open.has(target)) this.#context.out.send(target, { type: 'suspicion', suspicion });
  }

  #isSmall(): boolean {
    return (clusterRing(this.#context)?.size ?? 0) <= this.#context.options.tellAll;
  }

  #spread(part: Uint8Array, from: PeerId | undefined): void {
    const { out, options } = this.#context;
    const usable = (id: PeerId) => id !== from && this.#livenessTable.isReachable(id);
    const targets = new Set<PeerId>();
    if (this.#isSmall() && (from === undefined || isGateway(from))) {
      for (const peer of this.#channels.agents()) if (peer.id !== from) targets.add(peer.id);
    } else {
      for (const step of [1, -1] as const) {
        const id = this.#channels.neighbour(step, (other) => this.#livenessTable.isReachable(other));
        if (id !== undefined && id !== from) targets.add(id);
      }
      for (const id of this.#channels.some(options.fanout, (other) => usable(other) && !targets.has(other)))
        targets.add(id);
    }
    for (const id of targets) out.send(id, part);
  }

  /**
   * In a small cluster the member that learned the update first sends it to all others. So this node only asks the next
   * member whether it has the update, which costs 47 bytes and finds lost messages.
   */
  #askNextMember(session: string): void {
    const entry = this.#context.replica.get(session);
    if (entry === undefined) return;
    const id = sessionItemId(session);
    const { items } = this.#context.replica.digest({
      issuer: entry.issuer,
      bucket: Number.parseInt(id.slice(0, 1), 16),
    });
    const digest = { issuer: entry.issuer, items: items.filter((item) => item.id === id) };
    const next = this.#channels.neighbour(1, (other) => other !== session && this.#livenessTable.isReachable(other));
    if (next !== undefined) this.#context.out.send(next, { type: 'have', digest });
  }

  /**
   * The first delegate (rank 0) sends the update to the gateways. After `gatewayCheckMs` the other delegates check that
   * the gateways have it.
   */
  #sendToGateways(part: Uint8Array, about: UpdateSubject, from: PeerId | undefined): void {
    const { timerQueue, now, options, out, self, me } = this.#context;
    if (self.kind !== 'agent') return;
    // This agent's own tunnels have already delivered its record to the gateways.
    if (about.session === me && from === undefined && about.cluster !== undefined) return;
    if (about.cluster !== undefined && about.cluster !== self.cluster) return;
    for (const { id } of this.#channels.gateways()) {
      if (id === from) continue;
      if (this.#channels.topology.rankFor(id) === 0) out.send(id, part);
      else if (!timerQueue.has(`check:${id}`))
        timerQueue.set(`check:${id}`, now + options.gatewayCheckMs, () => this.#onCheck(id));
    }
  }

  /**
   * A gateway informs delegates of every cluster except the sender's, because the members of that cluster inform each
   * other.
   */
  #relay(part: Uint8Array, about: UpdateSubject, from: PeerId | undefined): void {
    const { options, out } = this.#context;
    const source = from === undefined ? undefined : this.#clusterOf(from);
    for (const [cluster, peers] of this.#delegates()) {
      if (cluster === source) continue;
      // The members of the owner's cluster already inform each other. One of their delegates is informed in case the
      // owner has no neighbors.
      const count = cluster === about.cluster ? 1 : options.delegates;
      const others = peers.filter((id) => id !== from && id !== about.session);
      const isolated = others.slice(count).filter((id) => this.#channels.open.get(id)?.isIsolated);
      for (const id of [...others.slice(0, count), ...isolated.slice(0, PIECES_MAX)]) out.send(id, part);
    }
  }

  /**
   * Sends a suspicion or refutation from a gateway to the session's node: directly, or through delegates of its
   * cluster.
   */
  sendToMember(part: SuspicionOrRefutation, session: string): void {
    const { options, out } = this.#context;
    if (this.#channels.open.has(session)) return out.send(session, part);
    const cluster = this.#clusterOf(session);
    const peers = this.#delegates().get(cluster ?? '') ?? [];
    for (const id of peers.slice(0, options.delegates)) out.send(id, part);
  }

  /**
   * A gateway's peers by cluster, without suspected and silent ones. The peers of each cluster are ordered by their
   * rank as delegates of this gateway, which the agents calculate in the same way.
   */
  #delegates(): Map<string, PeerId[]> {
    const byCluster = new Map<string, PeerId[]>();
    const { now, options } = this.#context;
    for (const { id, heardAt } of this.#channels.agents()) {
      const cluster = this.#clusterOf(id);
      if (cluster === undefined || this.#livenessTable.isSuspected(id)) continue;
      // A machine that lost power closes no socket. A gateway's object that hibernates sends no pings, so it does not
      // notice. So silent peers are skipped.
      if (now - heardAt > SILENT_PACES * options.gatewayPaceMaxMs) continue;
      const peers = byCluster.get(cluster);
      if (peers === undefined) byCluster.set(cluster, [id]);
      else peers.push(id);
    }
    for (const peers of byCluster.values())
      peers.sort((a, b) => delegateWeight(a, this.#context.me) - delegateWeight(b, this.#context.me));
    return byCluster;
  }

  /** One random peer of each cluster, with which a gateway compares after a repair brought it new updates. */
  randomDelegates(): PeerId[] {
    return [...this.#delegates().values()].flatMap((peers) => {
      const one = peers[Math.floor(this.#context.rng() * peers.length)];
      return one === undefined ? [] : [one];
    });
  }

  #clusterOf(peer: PeerId): string | undefined {
    return this.#context.replica.get(peer)?.ticket.cluster;
  }
}

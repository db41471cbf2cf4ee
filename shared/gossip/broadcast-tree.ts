/**
 * Spreads updates through a cluster along a tree, which the updates prune from the existing channels (Plumtree, Leitão,
 * Pereira & Rodrigues 2007). Every new channel is a branch. A member that receives an update a second time informs the
 * second sender, which then stops sending it updates. A moment later each member asks a neighbor on the ring about the
 * update. If the neighbor lacks it, that channel becomes a branch.
 *
 * Branches have a direction, and only the receiving end prunes them. If both ends could, two concurrent broadcasts from
 * two sides would cut off the members between them.
 */
import type { Digest, DigestItem } from '../lattice/replica-digest.ts';
import type { GossipChannels } from './gossip-channels.ts';
import type { GossipContext } from './gossip-context.ts';
import type { PeerId } from './gossip-events.ts';
import type { MessagePart } from './gossip-messages.ts';
import type { LivenessTable } from './liveness-table.ts';
import type { PeerState } from './peer-state.ts';

/** Maximum number of updates that are remembered so that members can ask about them; the oldest is dropped. */
const NEWS_MAX = 512;

interface SpreadUpdate {
  readonly issuer: string;
  readonly item: DigestItem;
  /**
   * True if the update started in this cluster. An update of another cluster enters through several delegates, so each
   * member receives it from several neighbors.
   */
  readonly isHome: boolean;
  readonly sentTo: Set<PeerId>;
  /** Peers that reported that they have the update. */
  readonly knownBy: Set<PeerId>;
  /** When the next question about the update is due. */
  askAt: number;
  /** True if the next member on the ring was asked; then the previous member follows. */
  asked: boolean;
}

export class BroadcastTree {
  readonly #context: GossipContext;
  readonly #channels: GossipChannels;
  readonly #livenessTable: LivenessTable;
  /** Recent updates by their id in digests, newest last. At most NEWS_MAX. */
  readonly #news = new Map<string, SpreadUpdate>();
  /** The updates in `#news` about which ring neighbors are still to be asked. */
  readonly #notYetAsked = new Set<SpreadUpdate>();

  constructor(context: GossipContext, channels: GossipChannels, livenessTable: LivenessTable) {
    this.#context = context;
    this.#channels = channels;
    this.#livenessTable = livenessTable;
  }

  /**
   * Passes on an update that was new here.
   * @param from the sender; undefined if the update started here
   */
  forward(part: Uint8Array, session: string, from: PeerId | undefined): void {
    const { now, options, out, replica, self } = this.#context;
    const entry = replica.get(session);
    if (entry === undefined) return;
    const { issuer, item } = entry;
    const isHome = self.kind === 'agent' && entry.ticket.cluster === self.cluster;
    const askAt = now + options.lazyMs;
    const news: SpreadUpdate = { issuer, item, isHome, sentTo: new Set(), knownBy: new Set(), askAt, asked: false };
    const sender = from === undefined ? undefined : this.#channels.open.get(from);
    if (sender !== undefined) {
      news.knownBy.add(sender.id);
      sender.branch = true;
      sender.firstAt = now;
    }
    for (const peer of this.#channels.open.values()) {
      if (peer.gateway || !peer.branch || peer.id === from || !this.#livenessTable.isReachable(peer.id)) continue;
      out.send(peer.id, part);
      news.sentTo.add(peer.id);
    }
    this.#remember(news);
  }

  #remember(news: SpreadUpdate): void {
    const before = this.#news.get(news.item.id);
    if (before !== undefined) this.#notYetAsked.delete(before);
    this.#news.delete(news.item.id);
    if (this.#news.size >= NEWS_MAX) this.#forgetOldest();
    this.#news.set(news.item.id, news);
    this.#notYetAsked.add(news);
    this.#askAt(news.askAt);
  }

  #forgetOldest(): void {
    const [oldest] = this.#news.values();
    if (oldest === undefined) return;
    this.#news.delete(oldest.item.id);
    this.#notYetAsked.delete(oldest);
  }

  /** Call when `peer` has sent an update of `session` that another peer had sent before. */
  onDuplicate(peer: PeerState, session: string): void {
    const { now, options, out, replica } = this.#context;
    const news = this.#news.get(replica.get(session)?.item.id ?? '');
    if (news === undefined) return;
    news.knownBy.add(peer.id);
    // An update of another cluster prunes no branch. A peer that was the first to send another update a moment ago
    // stays a branch, because its path is the shorter one for such updates.
    if (!news.isHome || now - peer.firstAt < options.quietMs) return;
    out.send(peer.id, have(news));
  }

  /** Handles a `have` of `peer`. */
  onHave(peer: PeerState, { items }: Digest): void {
    for (const item of items) {
      const news = this.#news.get(item.id);
      if (news === undefined || !isSame(news.item, item)) continue;
      news.knownBy.add(peer.id);
      // The peer had this update from another peer; otherwise it would not answer with `have`.
      if (news.isHome && news.sentTo.has(peer.id)) peer.branch = false;
    }
  }

  /**
   * Call when `peer` lacked the update `id`.
   * @returns true if the update is recent, so that `peer` must also pass it on
   */
  graft(peer: PeerState, id: string): boolean {
    const news = this.#news.get(id);
    if (news === undefined) return false;
    news.sentTo.add(peer.id);
    peer.branch = true;
    return true;
  }

  #askAt(at: number): void {
    const { timerQueue } = this.#context;
    if (!timerQueue.has('have')) timerQueue.set('have', at, () => this.#ask());
  }

  /**
   * Asks the ring neighbors about recent updates. The ring connects all members. So if an update was lost, there are
   * two neighbors: one has it, the other lacks it. This node asks the next member first. It asks the
   * previous member later, and only if that member has not asked this node: then the previous member may lack the
   * update.
   */
  #ask(): void {
    const { now, options, out } = this.#context;
    const isReachable = (id: PeerId) => this.#livenessTable.isReachable(id);
    const [next, before] = ([1, -1] as const).map((step) => this.#channels.neighbour(step, isReachable));
    let nextAt = Number.POSITIVE_INFINITY;
    for (const news of this.#notYetAsked) {
      const lacks = (id: PeerId | undefined) => id !== undefined && !news.sentTo.has(id) && !news.knownBy.has(id);
      if (news.askAt <= now) {
        const id = news.asked ? before : next;
        if (id !== undefined && lacks(id)) out.send(id, have(news));
        if (news.asked || !lacks(before)) this.#notYetAsked.delete(news);
        news.asked = true;
        news.askAt += options.lazyMs;
      }
      if (this.#notYetAsked.has(news)) nextAt = Math.min(nextAt, news.askAt);
    }
    if (nextAt < Number.POSITIVE_INFINITY) this.#askAt(nextAt);
  }
}

function have({ issuer, item }: SpreadUpdate): MessagePart {
  return { type: 'have', digest: { issuer, items: [item] } };
}

function isSame(a: DigestItem, b: DigestItem): boolean {
  return a.state === b.state && a.version === b.version && a.tie === b.tie && a.mark === b.mark;
}

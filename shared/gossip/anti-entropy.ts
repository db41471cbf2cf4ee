/**
 * Repairs what broadcasts missed. Each ping carries the sum over the whole replica. If the sums of two peers differ,
 * the peers compare the sums of buckets, then the digests of the buckets that differ, and send each other what is
 * missing. A node pulls from only one peer at a time, in pieces of a few messages. So a newcomer does not fetch
 * everything from each neighbor, and no peer can be made to send without limit.
 */

import { encodeUpdate } from '../lattice/registry-update.ts';
import { BUCKETS, bucketOf, type Digest, type DigestScope } from '../lattice/replica-digest.ts';
import { sessionItemId } from '../lattice/replica-entry.ts';
import type { BroadcastTree } from './broadcast-tree.ts';
import type { GossipContext } from './gossip-context.ts';
import type { PeerId } from './gossip-events.ts';
import { GOSSIP_MESSAGE_MAX_BYTES, type IssuerSums, SUMS_BYTES } from './gossip-messages.ts';
import type { PeerState } from './peer-state.ts';

/** Maximum size of all repairs that answer the digests of one message, or one request for entries. */
const ANSWER_MAX_BYTES = 3 * (GOSSIP_MESSAGE_MAX_BYTES - 8192);
/** If a request's digests have more items together, the last digests wait for the next request. */
const REQUEST_ITEMS_MAX = 1024;
/**
 * Maximum number of items per digest, so that it fits into one message. With 16 buckets of live and 16 of LEFT
 * sessions, this is enough for 57,000 sessions.
 */
const DIGEST_FIT_ITEMS = 1800;
/** Maximum number of items in a `have`. A longer one is ignored. */
const HAVE_ITEMS_MAX = 16;
/** Maximum number of entries of `#pulled`; at this number it is cleared. */
const PULLED_MAX = 1024;

interface Pull {
  peer: PeerId;
  /** Scopes that are still to be requested. The first `asked` of them are being answered. */
  queue: DigestScope[];
  asked: number;
  /**
   * Number of updates that the last answer brought. If an answer says `more` but brought none, its scopes are not
   * requested again. Otherwise a peer could keep this pull open forever.
   */
  received: number;
}

export class AntiEntropy {
  readonly #context: GossipContext;
  readonly #tree: BroadcastTree;
  readonly #onCascade: () => void;
  #pull: Pull | undefined;
  #root: bigint | undefined;
  readonly #rootBytes = new Uint8Array(8);
  /** When a broadcast last changed each bucket, by issuer. Bounded by the listed issuers. */
  readonly #touched = new Map<string, Float64Array>();
  readonly #pulled = new Map<string, number>();

  /**
   * @param onCascade called when updates arrived that other peers may lack, so that this node should compare with some
   * of those peers
   */
  constructor(context: GossipContext, tree: BroadcastTree, onCascade: () => void) {
    this.#context = context;
    this.#tree = tree;
    this.#onCascade = onCascade;
  }

  /** The sum over all issuers, which each ping carries. */
  root(): Uint8Array {
    this.#sum();
    return this.#rootBytes;
  }

  #sum(): bigint {
    if (this.#root !== undefined) return this.#root;
    let sum = 0n;
    for (const issuer of this.#context.replica.issuers()) {
      const { live, left } = this.#context.replica.fingerprint(issuer);
      sum += live + left;
    }
    this.#root = BigInt.asUintN(64, sum);
    new DataView(this.#rootBytes.buffer).setBigUint64(0, this.#root);
    return this.#root;
  }

  /**
   * Call when the replica has changed.
   * @param byPush true if a broadcast brought the change, so that other members are learning it now
   */
  changed(issuer: string, sessions: readonly string[], byPush: boolean): void {
    this.#root = undefined;
    if (!byPush) return;
    let touched = this.#touched.get(issuer);
    if (touched === undefined) {
      touched = new Float64Array(BUCKETS).fill(Number.NEGATIVE_INFINITY);
      this.#touched.set(issuer, touched);
    }
    if (sessions.length > BUCKETS) touched.fill(this.#context.now);
    else for (const session of sessions) touched[bucketOf(sessionItemId(session))] = this.#context.now;
  }

  forgetRoot(): void {
    this.#root = undefined;
  }

  differs(peer: PeerState, root: Uint8Array): boolean {
    const theirs = new DataView(root.buffer, root.byteOffset, 8).getBigUint64(0);
    const mine = this.#sum();
    if (mine === theirs) return false;
    return peer.comparedRoots === undefined || peer.comparedRoots.mine !== mine || peer.comparedRoots.theirs !== theirs;
  }

  sums(): IssuerSums[] {
    const { replica } = this.#context;
    return replica
      .issuers()
      .slice(0, 64)
      .map((issuer) => {
        const sums = new Uint8Array(SUMS_BYTES);
        const view = new DataView(sums.buffer);
        replica.fingerprint(issuer).buckets.forEach(({ live, left }, i) => {
          view.setUint32(8 * i, low(live));
          view.setUint32(8 * i + 4, low(left));
        });
        return { issuer, sums };
      });
  }

  /**
   * Requests the entries of buckets that differ, except buckets that a broadcast has just changed.
   * @returns true if a bucket was skipped or another pull is running, so that the peers must compare again later
   */
  compare(peer: PeerState, root: Uint8Array, theirs: readonly IssuerSums[]): boolean {
    const { timerQueue, now, options } = this.#context;
    const scopes: DigestScope[] = [];
    let unsettled = false;
    for (const { issuer, sums } of this.#pairs(theirs)) {
      const mine = this.#context.replica.fingerprint(issuer).buckets;
      const view = new DataView(sums.buffer, sums.byteOffset, sums.byteLength);
      for (let bucket = 0; bucket < BUCKETS; bucket++) {
        if (now - (this.#touched.get(issuer)?.[bucket] ?? Number.NEGATIVE_INFINITY) < options.quietMs) {
          unsettled = true;
          continue;
        }
        if (view.getUint32(8 * bucket) !== low(mine[bucket]?.live)) scopes.push({ issuer, bucket, part: 'live' });
        if (view.getUint32(8 * bucket + 4) !== low(mine[bucket]?.left)) scopes.push({ issuer, bucket, part: 'left' });
      }
    }
    if (scopes.length === 0) {
      const theirRoot = new DataView(root.buffer, root.byteOffset, 8).getBigUint64(0);
      if (!unsettled) peer.comparedRoots = { mine: this.#sum(), theirs: theirRoot };
      return unsettled;
    }
    if (this.#pull !== undefined) return true;
    // Live sessions come first, because they matter more than sessions that have left.
    scopes.sort((a, b) => Number(a.part === 'left') - Number(b.part === 'left'));
    this.#pull = { peer: peer.id, queue: scopes, asked: 0, received: 0 };
    this.#ask();
    timerQueue.set('pull', now + options.pullMs, () => this.#end());
    return unsettled;
  }

  /** The issuers to compare: those that the peer named and this node accepts, and those that only this node lists. */
  *#pairs(theirs: readonly IssuerSums[]): Generator<IssuerSums> {
    const { replica } = this.#context;
    const named = new Set<string>();
    for (const pair of theirs) {
      named.add(pair.issuer);
      if (replica.accepts(pair.issuer)) yield pair;
    }
    for (const issuer of replica.issuers()) {
      // It is unknown whether the peer lists this issuer. So its buckets are compared with zeros once; then `settled`
      // remembers the result.
      if (!named.has(issuer)) yield { issuer, sums: new Uint8Array(SUMS_BYTES) };
    }
  }

  #ask(): void {
    const pull = this.#pull;
    if (pull === undefined) return;
    let items = 0;
    pull.asked = 0;
    for (const scope of pull.queue) {
      const digest = this.#cutToFit(this.#context.replica.digest(scope));
      if (pull.asked > 0 && items + digest.items.length > REQUEST_ITEMS_MAX) break;
      items += digest.items.length;
      pull.asked++;
      this.#context.out.send(pull.peer, { type: 'digest', digest });
    }
    pull.received = 0;
  }

  /**
   * Cuts a digest that is too large to a random part. The peer then sends the entries of the items that were cut off,
   * although this node has them.
   */
  #cutToFit(digest: Digest): Digest {
    const { items } = digest;
    if (items.length <= DIGEST_FIT_ITEMS) return digest;
    const from = Math.floor(this.#context.rng() * items.length);
    return { ...digest, items: [...items.slice(from), ...items.slice(0, from)].slice(0, DIGEST_FIT_ITEMS) };
  }

  /** Answers the digests of one message with the entries that the peer lacks. */
  answer(peer: PeerState, digests: readonly Digest[]): void {
    const { out, replica } = this.#context;
    let left = ANSWER_MAX_BYTES;
    let more = false;
    for (const digest of digests) {
      if (!replica.accepts(digest.issuer)) continue;
      this.#requestNewer(peer, digest);
      if (left <= 0) {
        more = true;
        continue;
      }
      const { updates, complete } = replica.delta(digest, left);
      for (const update of updates) {
        left -= encodeUpdate(update).length;
        out.send(peer.id, { type: 'repair', update });
      }
      if (!complete) more = true;
    }
    out.send(peer.id, { type: 'done', more });
  }

  /** Handles a `have`: requests the items that are newer at the peer. */
  onHave(peer: PeerState, digest: Digest): void {
    if (digest.items.length > HAVE_ITEMS_MAX || !this.#context.replica.accepts(digest.issuer)) return;
    this.#tree.onHave(peer, digest);
    this.#requestNewer(peer, digest);
  }

  #requestNewer(peer: PeerState, digest: Digest): void {
    const { now, out, replica } = this.#context;
    const ids = replica.wants(digest);
    // Limits requests. Otherwise a peer could send digests of invented items without end, and this node would request
    // those items.
    if (ids.length === 0 || !peer.wants.take(ids.length, now)) return;
    peer.expected += ids.length;
    out.send(peer.id, { type: 'wants', issuer: digest.issuer, ids });
  }

  answerWants(peer: PeerState, issuer: string, ids: readonly string[]): void {
    const { out, replica } = this.#context;
    let left = ANSWER_MAX_BYTES;
    for (const id of ids) {
      for (const update of replica.pull(issuer, [id])) {
        left -= encodeUpdate(update).length;
        if (left < 0) return;
        out.send(peer.id, { type: this.#tree.graft(peer, id) ? 'news' : 'repair', update });
      }
    }
  }

  /** True if this node has asked the peer for entries, and the answer has not fully arrived yet. */
  awaits(peer: PeerState): boolean {
    return this.#pull?.peer === peer.id || peer.expected > 0;
  }

  /** True if we asked this peer for the entry that it sends. */
  expects(peer: PeerState): boolean {
    if (this.#pull?.peer === peer.id) return true;
    if (peer.expected <= 0) return false;
    peer.expected--;
    return true;
  }

  /** Call when a repair brought a new update. */
  onRepair(peer: PeerState): void {
    // Counts only updates of this node's own pull. A repair outside a pull comes from a peer's comparison, and causes
    // no cascade.
    if (this.#pull?.peer !== peer.id) return;
    this.#pull.received++;
    this.#cascade();
  }

  done(peer: PeerState, more: boolean): void {
    const pull = this.#pull;
    if (pull?.peer !== peer.id) return;
    if (!more || pull.received === 0) pull.queue.splice(0, pull.asked);
    if (pull.queue.length === 0) return this.#end();
    this.#ask();
    const { timerQueue, now, options } = this.#context;
    timerQueue.set('pull', now + options.pullMs, () => this.#end());
  }

  closed(peer: PeerId): void {
    if (this.#pull?.peer === peer) this.#end();
  }

  #end(): void {
    this.#pull = undefined;
    this.#context.timerQueue.cancel('pull');
  }

  /** After a delay, makes peers that may lack the same updates compare, because their next ping may be much later. */
  #cascade(): void {
    const { timerQueue, now, options } = this.#context;
    if (timerQueue.has('cascade')) return;
    timerQueue.set('cascade', now + options.cascadeMs, () => this.#onCascade());
  }

  /** Requests the ticket or payload of a session that an update named without them. */
  requestSession(peer: PeerState, session: string): void {
    const { now, options, out } = this.#context;
    if (now - (this.#pulled.get(session) ?? Number.NEGATIVE_INFINITY) < options.pullMs) return;
    if (this.#pulled.size >= PULLED_MAX) this.#pulled.clear();
    this.#pulled.set(session, now);
    out.send(peer.id, { type: 'pull', session });
  }

  /** Sends a session's whole entry as news, so that the peer passes it on. */
  sendSession(peer: PeerState, session: string): void {
    const entry = this.#context.replica.get(session);
    if (entry !== undefined) this.#context.out.send(peer.id, { type: 'news', update: entry.update(true) });
  }
}

function low(sum: bigint | undefined): number {
  return Number(BigInt.asUintN(32, sum ?? 0n));
}

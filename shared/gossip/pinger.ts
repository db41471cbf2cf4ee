/**
 * Sends pings and handles their answers. Each ping and each answer carries the sums with which two replicas are
 * compared.
 */
import { AdaptiveTimeout } from '../timing/adaptive-timeout.ts';
import { backoffMs } from '../timing/backoff.ts';
import type { AntiEntropy } from './anti-entropy.ts';
import type { GossipChannels } from './gossip-channels.ts';
import { type GossipContext, isGateway, shuffle, withJitter } from './gossip-context.ts';
import type { PathVerdict, PeerId } from './gossip-events.ts';
import type { IssuerSums, MessagePart } from './gossip-messages.ts';
import type { LivenessTable } from './liveness-table.ts';
import type { PeerState } from './peer-state.ts';

/** Maximum number of pings that wait for an answer; the oldest is forgotten. */
const PENDING_MAX = 512;
/** Maximum number of signed statements that are sent together. Each has 100 to 200 bytes. */
const STATEMENTS_MAX = 32;

interface Pending {
  peer: PeerId;
  done: ((verdict: PathVerdict) => void) | undefined;
  at: number;
}

export class Pinger {
  readonly #context: GossipContext;
  readonly #channels: GossipChannels;
  readonly #livenessTable: LivenessTable;
  readonly #antiEntropy: AntiEntropy;
  readonly #pending = new Map<number, Pending>();
  /**
   * Time limit for answers. It adapts to the response times of members, so that slow machines do not accuse one
   * another.
   */
  readonly answers: AdaptiveTimeout;
  /** Peers still to be pinged in this round. At most one per channel. */
  #round: PeerId[] = [];
  #isOddRound = false;
  #seq = 0;
  readonly #onTurn: (peer: PeerId) => void;

  /** @param onTurn called at each interval with the peer to be probed */
  constructor(
    context: GossipContext,
    channels: GossipChannels,
    livenessTable: LivenessTable,
    antiEntropy: AntiEntropy,
    onTurn: (peer: PeerId) => void,
  ) {
    this.#context = context;
    this.#channels = channels;
    this.#livenessTable = livenessTable;
    this.#antiEntropy = antiEntropy;
    this.#onTurn = onTurn;
    const { directMs, healthMax } = context.options;
    this.answers = new AdaptiveTimeout({ leastMs: directMs, mostMs: directMs * healthMax });
  }

  /** Starts the pings. Call again when the interval has changed. */
  start(): void {
    if (this.#context.self.kind === 'gateway') return;
    const { timerQueue, options, now, rng } = this.#context;
    const turn = () => {
      timerQueue.set('turn', this.#context.now + withJitter(this.#context, this.#context.options.probeMs), turn);
      const peer = this.#next();
      if (peer !== undefined) this.#onTurn(peer);
    };
    timerQueue.set('turn', now + rng() * options.probeMs, turn);
  }

  /**
   * The next peer to be probed. Every second time it is the next member on the ring. So each member is probed by at
   * least one neighbor every two intervals.
   */
  #next(): PeerId | undefined {
    this.#isOddRound = !this.#isOddRound;
    const successor = this.#channels.neighbour(1);
    if (this.#isOddRound && successor !== undefined) return successor;
    const size = this.#round.length;
    for (let i = 0; i < size; i++) {
      const peer = this.#round.pop();
      if (peer !== undefined && this.#channels.open.has(peer)) return peer;
    }
    const ids = this.#channels.agents().map((peer) => peer.id);
    this.#round = shuffle(
      ids.filter((id) => id !== successor),
      this.#context.rng,
    );
    return this.#round.pop() ?? successor;
  }

  /**
   * Pings a peer.
   * @param done called with `alive` if an answer arrives. The caller sets its own time limit, and calls `forget` when
   * it ends.
   */
  ping(peer: PeerId, done?: (verdict: PathVerdict) => void): number {
    this.#seq = (this.#seq + 1) >>> 0;
    if (this.#pending.size >= PENDING_MAX) {
      const [oldest] = this.#pending.keys();
      if (oldest !== undefined) this.#pending.delete(oldest);
    }
    this.#pending.set(this.#seq, { peer, done, at: this.#context.now });
    const root = this.#antiEntropy.root();
    this.#context.out.send(peer, { type: 'ping', seq: this.#seq, root, livenessHash: this.#livenessTable.sum });
    return this.#seq;
  }

  /** Stops waiting for an answer. If the answer still arrives, its response time still counts in `answers`. */
  forget(seq: number): void {
    const pending = this.#pending.get(seq);
    if (pending !== undefined) pending.done = undefined;
  }

  /** Pings the neighbors and some other peers now, so that they compare with this node. */
  pingSome(): void {
    const { options } = this.#context;
    const peers = new Set(this.#channels.some(options.fanout, () => true));
    for (const step of [1, -1] as const) {
      const neighbour = this.#channels.neighbour(step);
      if (neighbour !== undefined) peers.add(neighbour);
    }
    for (const peer of peers) this.ping(peer);
  }

  /**
   * Call when a channel that this node dialed is open. If channels to several peers open at about the same time, only
   * the first peer is pinged. Gossip brings this node's updates to the others.
   */
  greet(peer: PeerId): void {
    const { timerQueue, now, options } = this.#context;
    if (isGateway(peer)) return this.pingGateway(peer);
    if (timerQueue.has('greeted')) return;
    timerQueue.set('greeted', now + options.cascadeMs, () => {});
    this.ping(peer);
  }

  onPing(peer: PeerState, part: MessagePart & { type: 'ping' }): void {
    const { out, self } = this.#context;
    const root = this.#antiEntropy.root();
    const livenessHash = this.#livenessTable.sum;
    const paceMs = self.kind === 'gateway' ? this.#pace() : 0;
    out.send(peer.id, { type: 'ack', seq: part.seq, root, livenessHash, paceMs });
    if (this.#antiEntropy.differs(peer, part.root))
      out.send(peer.id, { type: 'sums', issuers: this.#antiEntropy.sums() });
    if (part.livenessHash !== livenessHash && !this.#livenessTable.unsettled) this.tellWords(peer.id);
  }

  /** @param sums the peer's sums of buckets, which it sends in the same message if its root differs */
  onAck(peer: PeerState, part: MessagePart & { type: 'ack' }, sums: readonly IssuerSums[] | undefined): void {
    const pending = this.#pending.get(part.seq);
    if (pending?.peer === peer.id) {
      this.#pending.delete(part.seq);
      if (!isGateway(peer.id)) this.answers.answered(this.#context.now - pending.at);
      pending.done?.('alive');
    }
    const differs = sums !== undefined && this.#antiEntropy.differs(peer, part.root);
    const isOpen = differs && this.#antiEntropy.compare(peer, part.root, sums);
    // A gateway is compared with again soon, because its next ping may be minutes away. Agents compare every second.
    if (isGateway(peer.id) && isOpen) this.#pingGatewayIn(peer.id, this.#context.options.gatewayCheckMs, 0);
    else if (isGateway(peer.id)) this.#schedule(peer.id, part.paceMs);
    else if (isOpen) this.#compareAgain(peer);
    // The message was read completely before this call, so the suspicions that the peer sent with its answer are
    // already in the table.
    const { now, options } = this.#context;
    if (
      part.livenessHash === this.#livenessTable.sum ||
      this.#livenessTable.unsettled ||
      now - peer.suspicionsSentAt < options.probeMs
    )
      return;
    peer.suspicionsSentAt = now;
    this.tellWords(peer.id);
  }

  /**
   * Pings a peer again soon after its channel has opened. A newcomer's first record has just changed its bucket, so
   * that bucket was not compared. If all differences are in that bucket, the two nodes would otherwise not learn about
   * each other until a round many seconds later.
   */
  #compareAgain({ id, openedAt }: PeerState): void {
    const { timerQueue, now, options } = this.#context;
    if (now - openedAt >= options.probeMs || timerQueue.has(`again:${id}`)) return;
    timerQueue.set(`again:${id}`, now + options.quietMs, () => {
      if (this.#channels.open.has(id)) this.ping(id);
    });
  }

  tellWords(peer: PeerId): void {
    for (const word of this.#livenessTable.statements(STATEMENTS_MAX)) {
      if ('target' in word) this.#context.out.send(peer, { type: 'suspicion', suspicion: word });
      else this.#context.out.send(peer, { type: 'refutation', refutation: word });
    }
  }

  /** Interval between one delegate's messages, so that all delegates together send one message per `gatewayPaceMs`. */
  #pace(): number {
    const { gatewayPaceMs, gatewayPaceMinMs, gatewayPaceMaxMs } = this.#context.options;
    const wish = this.#channels.open.size * gatewayPaceMs;
    return Math.min(gatewayPaceMaxMs, Math.max(gatewayPaceMinMs, wish));
  }

  #schedule(gateway: PeerId, paceMs: number): void {
    const { options } = this.#context;
    this.#pingGatewayIn(gateway, Math.min(options.gatewayPaceMaxMs, Math.max(options.gatewayPaceMinMs, paceMs)), 0);
  }

  /** Pings a gateway after `waitMs`, and again at growing intervals until it answers or its channel closes. */
  #pingGatewayIn(gateway: PeerId, waitMs: number, unanswered: number): void {
    const { timerQueue, now, options } = this.#context;
    timerQueue.set(`pace:${gateway}`, now + withJitter(this.#context, waitMs), () => {
      if (!this.#channels.open.has(gateway)) return;
      this.ping(gateway);
      const next = backoffMs(unanswered, { minMs: options.gatewayRetryMs, maxMs: options.gatewayPaceMaxMs });
      this.#pingGatewayIn(gateway, next, unanswered + 1);
    });
  }

  /** Pings a gateway now. Also used when its channel opens. */
  pingGateway(gateway: PeerId): void {
    this.#pingGatewayIn(gateway, 0, 0);
  }
}

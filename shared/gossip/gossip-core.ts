/** The gossip of one node: passes each event, and each part of a received message, to the module that handles it. */
import { LatticeError } from '../lattice/lattice-error.ts';
import { AntiEntropy } from './anti-entropy.ts';
import { Broadcast } from './broadcast.ts';
import { BroadcastTree } from './broadcast-tree.ts';
import { EvictionDecider } from './eviction-decider.ts';
import type { TunableOptions } from './failure-detection-settings.ts';
import { GossipChannels } from './gossip-channels.ts';
import { type GossipContext, memberEntry } from './gossip-context.ts';
import type { GossipEvent, GossipMemory, Liveness, PeerId } from './gossip-events.ts';
import { decodeMessage, GOSSIP_MESSAGE_MAX_BYTES, type MessagePart } from './gossip-messages.ts';
import { LivenessProbes } from './liveness-probes.ts';
import { LivenessTable } from './liveness-table.ts';
import type { PeerState } from './peer-state.ts';
import { Pinger } from './pinger.ts';
import { ReceivedUpdates } from './received-updates.ts';
import { Suspicions } from './suspicions.ts';

export class GossipCore {
  readonly context: GossipContext;
  readonly channels: GossipChannels;
  readonly #livenessTable: LivenessTable;
  readonly #antiEntropy: AntiEntropy;
  readonly #pinger: Pinger;
  readonly #tree: BroadcastTree;
  readonly #broadcast: Broadcast;
  readonly #probes: LivenessProbes;
  readonly #evictionDecider: EvictionDecider | undefined;
  readonly #updates: ReceivedUpdates;
  readonly #accusations: Suspicions;
  readonly #memory: GossipMemory | undefined;

  constructor(context: GossipContext, memory: GossipMemory | undefined) {
    this.context = context;
    this.#memory = memory;
    this.channels = new GossipChannels(context, (peer) => this.#livenessTable.isReachable(peer));
    this.#livenessTable = new LivenessTable(context, (session) => this.#livenessChanged(session));
    const { channels } = this;
    const livenessTable = this.#livenessTable;
    this.#tree = new BroadcastTree(context, channels, livenessTable);
    this.#antiEntropy = new AntiEntropy(context, this.#tree, () => this.#onCascade());
    this.#pinger = new Pinger(context, channels, livenessTable, this.#antiEntropy, (peer) => this.#onTurn(peer));
    this.#broadcast = new Broadcast(context, channels, livenessTable, this.#tree, (id) => this.#onCheck(id));
    const onSilent = (target: PeerId) => this.#accusations.accuse(target);
    this.#probes = new LivenessProbes(context, channels, livenessTable, this.#pinger, onSilent);
    if (context.self.kind === 'gateway') this.#evictionDecider = new EvictionDecider(context, channels, livenessTable);
    const parts = {
      channels,
      livenessTable,
      broadcast: this.#broadcast,
      tree: this.#tree,
      evictionDecider: this.#evictionDecider,
      charge: (peer: PeerState, checks: number) => this.#charge(peer, checks),
      reject: (peer: PeerState, code: string) => this.#rejected(peer, code),
    };
    this.#updates = new ReceivedUpdates(context, { ...parts, antiEntropy: this.#antiEntropy });
    this.#accusations = new Suspicions(context, { ...parts, probes: this.#probes, pinger: this.#pinger });
  }

  #onTurn(peer: PeerId): void {
    if (memberEntry(this.context, peer) !== undefined) return this.#probes.probe(peer);
    // A newcomer does not know yet whether its first peer is a member. Pinging the peer compares the replicas, and
    // unlike a probe it leads to no suspicion.
    this.#pinger.ping(peer);
  }

  #onCheck(gateway: PeerId): void {
    if (this.channels.open.has(gateway)) this.#pinger.pingGateway(gateway);
  }

  #onCascade(): void {
    if (this.context.self.kind === 'agent') return this.#pinger.pingSome();
    for (const peer of this.#broadcast.randomDelegates()) this.#pinger.ping(peer);
  }

  liveness(session: string): Liveness {
    return this.#livenessTable.of(session);
  }

  observers(session: string): number {
    return this.#livenessTable.observers(session);
  }

  handle(event: GossipEvent): void {
    switch (event.type) {
      case 'start':
        return this.#start();
      case 'timer':
        return;
      case 'opened':
        return this.#opened(event.peer, event.inbound, event.resumed === true);
      case 'closed':
        return this.#closed(event.peer);
      case 'dialFailed':
        return this.#probes.dialFailed(event.peer, this.channels.dialFailed(event.peer));
      case 'message':
        return this.#message(event.peer, event.bytes);
      case 'local':
        for (const update of event.updates) this.#updates.local(update);
        return;
      case 'gatewayAnswered':
        this.#evictionDecider?.gatewayAnswered(event.target, event.verdict);
        return this.#probes.gatewayAnswered(event.target, event.verdict);
      case 'gateways':
        this.channels.setGateways(event.gateways);
        // A tunnel has reconnected. This node compares with the gateways now, because one of them or this node may have
        // missed updates.
        for (const { id } of this.channels.gateways()) this.#pinger.pingGateway(id);
        return;
      case 'tunnel':
        return this.#evictionDecider?.tunnel(event.session, event.open);
      case 'doubt':
        if (this.#evictionDecider !== undefined) return this.#evictionDecider.examine(event.session);
        return this.#probes.probe(event.session);
      case 'replaced':
        this.#antiEntropy.forgetRoot();
        return this.#updates.changed(event.sessions);
      case 'tuned':
        return this.#tuned(event.options);
    }
  }

  /** Runs after each event. */
  settle(): void {
    this.context.timerQueue.run(this.context.now);
    this.#accusations.watchMissing();
    this.channels.maintain();
  }

  remember(): GossipMemory {
    const none = { suspects: [], absent: [], frozen: [] };
    return {
      words: this.#livenessTable.statements(Number.POSITIVE_INFINITY),
      ...(this.#evictionDecider?.remember() ?? none),
    };
  }

  #start(): void {
    const { replica } = this.context;
    this.#updates.changed([...replica.entries()].map((entry) => entry.session));
    for (const word of this.#memory?.words ?? []) {
      if ('target' in word) {
        if (this.#livenessTable.checkSuspicion(word, () => true) !== 'forged') this.#livenessTable.addSuspicion(word);
      } else this.#livenessTable.applyRefutation(word, () => true);
    }
    this.#evictionDecider?.start(this.#memory);
    this.channels.start();
    this.#pinger.start();
  }

  #tuned(options: TunableOptions): void {
    const before = this.context.options;
    this.context.options = { ...before, ...options };
    if (this.context.options.probeMs !== before.probeMs) this.#pinger.start();
    this.#evictionDecider?.resetTimers();
  }

  #opened(id: PeerId, inbound: boolean, resumed: boolean): void {
    const peer = this.channels.opened(id, inbound);
    if (peer === undefined) return;
    this.#livenessTable.setReachable(id, true);
    this.#probes.opened(id);
    // Only the side that dialed sends the first ping. Otherwise both sides would ask for the same differences.
    if (!inbound && !resumed) this.#pinger.greet(id);
    if (!resumed) this.#accusations.sendSuspicions(peer);
  }

  #closed(id: PeerId): void {
    const wanted = this.channels.closed(id);
    this.#antiEntropy.closed(id);
    this.#probes.closed(id);
    if (wanted) this.#probes.probe(id);
  }

  #message(id: PeerId, bytes: Uint8Array): void {
    const peer = this.channels.open.get(id);
    if (peer === undefined) return;
    const { now, out } = this.context;
    peer.heardAt = now;
    try {
      if (bytes.length > GOSSIP_MESSAGE_MAX_BYTES)
        throw new LatticeError('too_large', `message of ${bytes.length} bytes`);
      const parts = decodeMessage(bytes);
      const asked = this.#antiEntropy.awaits(peer) && parts.some(({ type }) => type === 'repair' || type === 'done');
      if (!(asked ? peer.asked : peer.bytes).take(bytes.length, now))
        return this.channels.hangUp(id, 'flood', this.context.options.banMs);
      this.#parts(peer, parts);
    } catch (error) {
      if (!(error instanceof LatticeError)) throw error;
      out.act({ type: 'notice', notice: { what: 'rejected', peer: id, code: error.code } });
      this.channels.hangUp(id, 'broken', this.context.options.banMs);
    }
    if (this.#livenessTable.isSuspected(id)) this.#accusations.sendSuspicions(peer);
  }

  #parts(peer: PeerState, parts: readonly MessagePart[]): void {
    const digests = [];
    const sums = parts.find((part) => part.type === 'sums')?.issuers;
    const acks = [];
    for (const part of parts) {
      if (!this.channels.open.has(peer.id)) return;
      switch (part.type) {
        case 'digest':
          digests.push(part.digest);
          break;
        case 'ack':
          acks.push(part);
          break;
        default:
          this.#part(peer, part);
      }
    }
    for (const ack of acks) this.#pinger.onAck(peer, ack, sums);
    if (digests.length > 0 && this.channels.open.has(peer.id)) this.#antiEntropy.answer(peer, digests);
  }

  #part(peer: PeerState, part: Exclude<MessagePart, { type: 'digest' | 'ack' }>): void {
    switch (part.type) {
      case 'ping':
        return this.#pinger.onPing(peer, part);
      case 'sums':
        return;
      case 'probe':
        if (this.#charge(peer, 1)) this.#probes.onProbe(peer.id, part.seq, part.target);
        return;
      case 'probed':
        this.#evictionDecider?.onVerdict(peer.id, part.seq, part.verdict);
        return this.#probes.onVerdict(peer.id, part.seq, part.verdict);
      case 'news':
        return this.#updates.receive(peer, part.update, true);
      case 'repair':
        return this.#updates.receive(peer, part.update, false);
      case 'have':
        return this.#antiEntropy.onHave(peer, part.digest);
      case 'wants':
        return this.#antiEntropy.answerWants(peer, part.issuer, part.ids);
      case 'done':
        return this.#antiEntropy.done(peer, part.more);
      case 'pull':
        return this.#antiEntropy.sendSession(peer, part.session);
      case 'apart':
        peer.isIsolated = part.apart;
        return;
      case 'suspicion':
        return this.#accusations.onSuspicion(peer, part.suspicion);
      case 'refutation':
        return this.#accusations.onRefutation(peer, part.refutation);
    }
  }

  /**
   * Takes `checks` from the work that the peer may cause without being asked. Ends the peer's channel if nothing is
   * left.
   */
  #charge(peer: PeerState, checks: number): boolean {
    if (peer.checks.take(checks, this.context.now)) return true;
    this.channels.hangUp(peer.id, 'flood', this.context.options.banMs);
    return false;
  }

  /**
   * Ends the channel of a peer that sent invalid data. Whether data is valid depends only on its bytes, so an honest
   * peer has already rejected data that is invalid.
   */
  #rejected(peer: PeerState, code: string): void {
    if (code === 'unknown_issuer' || code === 'full') return;
    this.context.out.act({ type: 'notice', notice: { what: 'rejected', peer: peer.id, code } });
    this.channels.hangUp(peer.id, 'broken', this.context.options.banMs);
  }

  #livenessChanged(session: string): void {
    const cluster = this.context.replica.get(session)?.ticket.cluster;
    const ring = cluster === undefined ? undefined : this.context.rings.get(cluster);
    if (this.#livenessTable.isSuspected(session)) {
      if (session !== this.context.me && ring?.remove(session)) this.channels.membersChanged();
      return;
    }
    this.#evictionDecider?.cleared(session);
    if (memberEntry(this.context, session) !== undefined && ring?.add(session)) this.channels.membersChanged();
  }
}

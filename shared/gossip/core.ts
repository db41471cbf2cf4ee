/** One node's gossip: takes each event apart and hands it to those whose matter it is. */
import { LatticeError } from '../lattice/error.ts';
import { Accusations } from './accusations.ts';
import { Channels } from './channels.ts';
import { type Context, memberEntry } from './context.ts';
import { Judge } from './judge.ts';
import { decodeMessage, MESSAGE_MAX_BYTES, type Part } from './messages.ts';
import { Opinions } from './opinions.ts';
import type { Peer } from './peer.ts';
import { Probes } from './probes.ts';
import { Pulse } from './pulse.ts';
import { Push } from './push.ts';
import { Repair } from './repair.ts';
import { Tree } from './tree.ts';
import type { Event, GossipMemory, Liveness, PeerId } from './types.ts';
import { Updates } from './updates.ts';

export class Core {
  readonly context: Context;
  readonly channels: Channels;
  readonly #opinions: Opinions;
  readonly #repair: Repair;
  readonly #pulse: Pulse;
  readonly #tree: Tree;
  readonly #push: Push;
  readonly #probes: Probes;
  readonly #judge: Judge | undefined;
  readonly #updates: Updates;
  readonly #accusations: Accusations;
  readonly #memory: GossipMemory | undefined;

  constructor(context: Context, memory: GossipMemory | undefined) {
    this.context = context;
    this.#memory = memory;
    this.channels = new Channels(context);
    this.#opinions = new Opinions(context, (session) => this.#opinionChanged(session));
    this.#tree = new Tree(context, this.channels, this.#opinions);
    this.#repair = new Repair(context, this.#tree);
    this.#pulse = new Pulse(context, this.channels, this.#opinions, this.#repair);
    this.#push = new Push(context, this.channels, this.#opinions, this.#tree);
    this.#probes = new Probes(context, this.channels, this.#opinions, this.#pulse);
    if (context.self.kind === 'gateway') this.#judge = new Judge(context, this.channels, this.#opinions);
    const parts = {
      channels: this.channels,
      opinions: this.#opinions,
      push: this.#push,
      tree: this.#tree,
      judge: this.#judge,
      charge: (peer: Peer, checks: number) => this.#charge(peer, checks),
      reject: (peer: Peer, code: string) => this.#rejected(peer, code),
    };
    this.#updates = new Updates(context, { ...parts, repair: this.#repair });
    this.#accusations = new Accusations(context, { ...parts, probes: this.#probes, pulse: this.#pulse });
    this.#connect();
  }

  /** What parts want of each other in the other direction. */
  #connect(): void {
    const { context } = this;
    this.channels.wanted.isReachable = (peer) => this.#opinions.isReachable(peer);
    this.#pulse.onTurn = (peer) => {
      if (memberEntry(context, peer) !== undefined) return this.#probes.probe(peer);
      // A newcomer's first peer is nobody it knows: nothing to judge, everything to learn.
      this.#pulse.ping(peer);
    };
    this.#push.onCheck = (gateway) => {
      if (this.channels.open.has(gateway)) this.#pulse.pingGateway(gateway);
    };
    this.#repair.onCascade = () => {
      if (context.self.kind === 'agent') return this.#pulse.pingSome();
      for (const peer of this.#push.envoys()) this.#pulse.ping(peer);
    };
    this.#probes.onSilent = (target) => this.#accusations.accuse(target);
  }

  liveness(session: string): Liveness {
    return this.#opinions.of(session);
  }

  observers(session: string): number {
    return this.#opinions.observers(session);
  }

  handle(event: Event): void {
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
      case 'relayed':
        this.#judge?.relayed(event.target, event.verdict);
        return this.#probes.relayed(event.target, event.verdict);
      case 'gateways':
        this.channels.setGateways(event.gateways);
        // A tunnel that was away is back: what it missed is not waited for.
        for (const { id } of this.channels.gateways()) this.#pulse.pingGateway(id);
        return;
      case 'tunnel':
        return this.#judge?.tunnel(event.session, event.open);
      case 'doubt':
        if (this.#judge !== undefined) return this.#judge.doubt(event.session);
        return this.#probes.probe(event.session);
      case 'replaced':
        this.#repair.forgetRoot();
        return this.#updates.changed(event.sessions);
    }
  }

  /** After all of an event. */
  settle(): void {
    this.context.agenda.run(this.context.now);
    this.#accusations.watchMissing();
    this.channels.maintain();
  }

  remember(): GossipMemory {
    const none = { suspects: [], absent: [], frozen: [] };
    return { words: this.#opinions.words(Number.POSITIVE_INFINITY), ...(this.#judge?.remember() ?? none) };
  }

  #start(): void {
    const { replica } = this.context;
    this.#updates.changed([...replica.entries()].map((entry) => entry.session));
    for (const word of this.#memory?.words ?? []) {
      if ('target' in word) {
        if (this.#opinions.examine(word, () => true) !== 'forged') this.#opinions.believe(word);
      } else this.#opinions.hear(word, () => true);
    }
    this.#judge?.start(this.#memory);
    this.channels.start();
    this.#pulse.start();
  }

  #opened(id: PeerId, inbound: boolean, resumed: boolean): void {
    const peer = this.channels.opened(id, inbound);
    if (peer === undefined) return;
    this.#opinions.reach(id, true);
    this.#probes.opened(id);
    // Who dialled speaks first: otherwise both would ask.
    if (!inbound && !resumed) this.#pulse.greet(id);
    if (!resumed) this.#accusations.tell(peer);
  }

  #closed(id: PeerId): void {
    const wanted = this.channels.closed(id);
    this.#repair.closed(id);
    this.#probes.closed(id);
    if (wanted) this.#probes.probe(id);
  }

  #message(id: PeerId, bytes: Uint8Array): void {
    const peer = this.channels.open.get(id);
    if (peer === undefined) return;
    const { now, out } = this.context;
    peer.heardAt = now;
    try {
      if (bytes.length > MESSAGE_MAX_BYTES) throw new LatticeError('too_large', `message of ${bytes.length} bytes`);
      const parts = decodeMessage(bytes);
      const asked = this.#repair.awaits(peer) && parts.some(({ type }) => type === 'repair' || type === 'done');
      if (!(asked ? peer.asked : peer.bytes).take(bytes.length, now))
        return this.channels.hangUp(id, 'flood', this.context.options.banMs);
      this.#parts(peer, parts);
    } catch (error) {
      if (!(error instanceof LatticeError)) throw error;
      out.act({ type: 'notice', notice: { what: 'rejected', peer: id, code: error.code } });
      this.channels.hangUp(id, 'broken', this.context.options.banMs);
    }
    if (this.#opinions.isSuspected(id)) this.#accusations.tell(peer);
  }

  #parts(peer: Peer, parts: readonly Part[]): void {
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
    for (const ack of acks) this.#pulse.heardAck(peer, ack, sums);
    if (digests.length > 0 && this.channels.open.has(peer.id)) this.#repair.answer(peer, digests);
  }

  #part(peer: Peer, part: Exclude<Part, { type: 'digest' | 'ack' }>): void {
    switch (part.type) {
      case 'ping':
        return this.#pulse.heardPing(peer, part);
      case 'sums':
        return;
      case 'probe':
        if (this.#charge(peer, 1)) this.#probes.heardProbe(peer.id, part.seq, part.target);
        return;
      case 'probed':
        this.#judge?.heardVerdict(peer.id, part.seq, part.verdict);
        return this.#probes.heardVerdict(peer.id, part.seq, part.verdict);
      case 'news':
        return this.#updates.heard(peer, part.update, true);
      case 'repair':
        return this.#updates.heard(peer, part.update, false);
      case 'have':
        return this.#repair.haveHeard(peer, part.digest);
      case 'wants':
        return this.#repair.give(peer, part.issuer, part.ids);
      case 'done':
        return this.#repair.done(peer, part.more);
      case 'pull':
        return this.#repair.fill(peer, part.session);
      case 'apart':
        peer.apart = part.apart;
        return;
      case 'suspicion':
        return this.#accusations.heardSuspicion(peer, part.suspicion);
      case 'refutation':
        return this.#accusations.heardRefutation(peer, part.refutation);
    }
  }

  /** Work that this peer causes unasked. */
  #charge(peer: Peer, checks: number): boolean {
    if (peer.checks.take(checks, this.context.now)) return true;
    this.channels.hangUp(peer.id, 'flood', this.context.options.banMs);
    return false;
  }

  /** Verification is a function of the bytes alone: an honest peer has nothing that fails it. */
  #rejected(peer: Peer, code: string): void {
    if (code === 'unknown_issuer' || code === 'full') return;
    this.context.out.act({ type: 'notice', notice: { what: 'rejected', peer: peer.id, code } });
    this.channels.hangUp(peer.id, 'broken', this.context.options.banMs);
  }

  #opinionChanged(session: string): void {
    const cluster = this.context.replica.get(session)?.ticket.cluster;
    const ring = cluster === undefined ? undefined : this.context.rings.get(cluster);
    if (this.#opinions.isSuspected(session)) {
      if (session !== this.context.me && ring?.remove(session)) this.channels.membersChanged();
      return;
    }
    this.#judge?.cleared(session);
    if (memberEntry(this.context, session) !== undefined && ring?.add(session)) this.channels.membersChanged();
  }
}

/** One node's gossip: takes each event apart and hands it to those whose matter it is. */
import { LatticeError } from '../lattice/error.ts';
import type { MergeResult } from '../lattice/replica.ts';
import type { Update } from '../lattice/update.ts';
import { Channels, type Peer } from './channels.ts';
import { type Context, memberEntry } from './context.ts';
import { Judge } from './judge.ts';
import { decodeMessage, MESSAGE_MAX_BYTES, type Part, type Refutation, type Suspicion } from './messages.ts';
import { Opinions } from './opinions.ts';
import { Probes } from './probes.ts';
import { Pulse } from './pulse.ts';
import { Push, type Subject } from './push.ts';
import { Repair } from './repair.ts';
import { Ring } from './ring.ts';
import type { Event, GossipMemory, Liveness, PeerId } from './types.ts';

/** Signatures behind one entry that is new: certificate, ticket, record. */
const CHECKS_PER_UPDATE = 2;

export class Core {
  readonly context: Context;
  readonly channels: Channels;
  readonly #opinions: Opinions;
  readonly #repair: Repair;
  readonly #pulse: Pulse;
  readonly #push: Push;
  readonly #probes: Probes;
  readonly #judge: Judge | undefined;
  readonly #memory: GossipMemory | undefined;
  /** Of the own record, the hash of what this agent said last: anything newer is a clone's. */
  #own: { state: string; version: number; hash: string } | undefined;
  #ended = false;

  constructor(context: Context, memory: GossipMemory | undefined) {
    this.context = context;
    this.#memory = memory;
    this.channels = new Channels(context);
    this.#opinions = new Opinions(context, (session) => this.#opinionChanged(session));
    this.#repair = new Repair(context);
    this.#pulse = new Pulse(context, this.channels, this.#opinions, this.#repair);
    this.#push = new Push(context, this.channels, this.#opinions);
    this.#probes = new Probes(context, this.channels, this.#opinions, this.#pulse);
    if (context.self.kind === 'gateway') this.#judge = new Judge(context, this.channels, this.#opinions);
    this.channels.isReachable = (peer) => this.#opinions.isReachable(peer);
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
    this.#probes.onSilent = (target) => this.#accuse(target);
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
        for (const update of event.updates) this.#local(update);
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
        return this.#membersChanged(event.sessions);
    }
  }

  /** After all of an event. */
  settle(): void {
    this.context.agenda.run(this.context.now);
    this.channels.maintain();
  }

  remember(): GossipMemory {
    const none = { suspects: [], absent: [], frozen: [] };
    return { words: this.#opinions.words(Number.POSITIVE_INFINITY), ...(this.#judge?.remember() ?? none) };
  }

  #start(): void {
    const { replica } = this.context;
    this.#membersChanged([...replica.entries()].map((entry) => entry.session));
    for (const word of this.#memory?.words ?? []) {
      if ('target' in word) {
        if (this.#opinions.examine(word, () => true) !== 'forged') this.#opinions.believe(word);
      } else this.#opinions.hear(word, () => true);
    }
    this.#judge?.start(this.#memory);
    this.channels.start();
    this.#pulse.start();
    this.#watchSuspects();
  }

  #opened(id: PeerId, inbound: boolean, resumed: boolean): void {
    const peer = this.channels.opened(id, inbound);
    if (peer === undefined) return;
    this.#opinions.reach(id, true);
    this.#probes.opened(id);
    // Who dialled speaks first: otherwise both would ask.
    if (!inbound && !resumed) this.#pulse.greet(id);
    if (!resumed) this.#accuseTo(peer);
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
    if (this.#opinions.isSuspected(id)) this.#accuseTo(peer);
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
        return this.#heardUpdate(peer, part.update, true);
      case 'repair':
        return this.#heardUpdate(peer, part.update, false);
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
        return this.#heardSuspicion(peer, part.suspicion);
      case 'refutation':
        return this.#heardRefutation(peer, part.refutation);
    }
  }

  /** Work that this peer causes unasked. */
  #charge(peer: Peer, checks: number): boolean {
    if (peer.checks.take(checks, this.context.now)) return true;
    this.channels.hangUp(peer.id, 'flood', this.context.options.banMs);
    return false;
  }

  #heardUpdate(peer: Peer, update: Update, isNews: boolean): void {
    const result = this.context.replica.merge(update);
    const expected = !isNews && this.#repair.expects(peer);
    switch (result.outcome) {
      case 'known':
      case 'older':
      case 'collected':
        this.#noteConflict(result);
        return this.#checkSelf(result.outcome === 'collected' ? [result.session] : []);
      case 'deferred':
        return this.#repair.lacks(peer, result.session);
      case 'rejected':
        return this.#rejected(peer, result.code);
      case 'merged':
        if (!expected && !this.#charge(peer, CHECKS_PER_UPDATE)) return;
        this.#merged(result, isNews);
        if (isNews) this.#push.update(update, this.#subject(update, result.sessions), peer.id);
        else this.#repair.brought(peer);
    }
  }

  /** Verification is a function of the bytes alone: an honest peer has nothing that fails it. */
  #rejected(peer: Peer, code: string): void {
    if (code === 'unknown_issuer' || code === 'full') return;
    this.context.out.act({ type: 'notice', notice: { what: 'rejected', peer: peer.id, code } });
    this.channels.hangUp(peer.id, 'broken', this.context.options.banMs);
  }

  #local(update: Update): void {
    const result = this.context.replica.merge(update);
    if (result.outcome !== 'merged' && result.outcome !== 'known') return;
    const mine = this.context.replica.get(this.context.me)?.record;
    if (mine !== undefined && result.sessions.includes(this.context.me)) this.#own = mine;
    // Known: the driver merged it before, and others have yet to hear.
    this.#merged(result, true);
    this.#push.update(update, this.#subject(update, result.sessions), undefined);
  }

  #subject(update: Update, sessions: readonly string[]): Subject {
    const session = update.kind === 'entry' ? sessions[0] : undefined;
    const cluster = session === undefined ? undefined : this.context.replica.get(session)?.ticket.cluster;
    return { session, cluster };
  }

  #merged(result: Extract<MergeResult, { outcome: 'merged' | 'known' }>, byPush: boolean): void {
    this.#repair.changed(result.issuer, result.sessions, byPush);
    this.#noteConflict(result);
    this.#membersChanged(result.sessions);
  }

  #noteConflict(result: MergeResult): void {
    if (!('conflict' in result) || result.conflict === undefined) return;
    const { session, records } = result.conflict;
    this.context.out.act({ type: 'notice', notice: { what: 'equivocation', session, records } });
  }

  #membersChanged(sessions: readonly string[]): void {
    if (sessions.length === 0) return;
    this.context.out.changed(sessions);
    for (const session of sessions) this.#memberChanged(session);
    this.#checkSelf(sessions);
  }

  #memberChanged(session: string): void {
    const { self } = this.context;
    const entry = memberEntry(this.context, session);
    if (entry === undefined) {
      for (const ring of this.context.rings.values()) {
        if (ring.remove(session)) break;
      }
      this.#judge?.gone(session);
      this.#opinions.forget(session);
      if (session !== this.context.me) this.channels.membersChanged(session);
      return;
    }
    const { cluster } = entry.ticket;
    if (self.kind === 'agent' && cluster !== self.cluster) return;
    if (this.#opinions.isSuspected(session)) return;
    let ring = this.context.rings.get(cluster);
    if (ring === undefined) {
      ring = new Ring();
      this.context.rings.set(cluster, ring);
    }
    if (ring.add(session)) this.channels.membersChanged();
  }

  /** The own session: gone by its issuer's word, or signed for by somebody else. */
  #checkSelf(sessions: readonly string[]): void {
    const { me, out, replica, self } = this.context;
    if (self.kind !== 'agent' || this.#ended || !sessions.includes(me)) return;
    const entry = replica.get(me);
    const mine = this.#own;
    if (mine === undefined) return;
    if (entry === undefined || entry.eviction !== undefined) {
      this.#ended = true;
      out.act({ type: 'ended', reason: 'evicted' });
    } else if (entry.record?.hash !== mine.hash) {
      this.#ended = true;
      out.act({ type: 'ended', reason: 'cloned' });
    }
  }

  #opinionChanged(session: string): void {
    const cluster = this.context.replica.get(session)?.ticket.cluster;
    const ring = cluster === undefined ? undefined : this.context.rings.get(cluster);
    if (this.#opinions.isSuspected(session)) {
      if (session !== this.context.me && ring?.remove(session)) this.channels.membersChanged();
      return this.#watchSuspects();
    }
    this.#judge?.cleared(session);
    if (memberEntry(this.context, session) !== undefined && ring?.add(session)) this.channels.membersChanged();
  }

  /** All three paths failed here. */
  #accuse(target: PeerId): void {
    const { me, now, options } = this.context;
    const cluster = memberEntry(this.context, target)?.ticket.cluster;
    if (cluster === undefined) return;
    // A peer from elsewhere is for its own neighbours to judge.
    if (this.context.self.kind === 'agent' && cluster !== this.context.self.cluster)
      return this.#opinions.reach(target, false);
    // Others would not listen, and the target would not answer.
    if (now - this.#opinions.lastAccused(target, me) < options.accuseMs) return;
    const suspicion = this.#opinions.accuse(target);
    if (suspicion === undefined) return;
    const known = this.#opinions.suspicionsOf(target).some(({ observer }) => observer === me);
    if (known) return;
    this.#opinions.believe(suspicion);
    this.#push.tell(target, suspicion);
    this.#push.word({ type: 'suspicion', suspicion }, target, undefined);
  }

  #heardSuspicion(peer: Peer, suspicion: Suspicion): void {
    const { me } = this.context;
    if (suspicion.target === me) return this.#refute(peer, suspicion);
    const wasNear = this.channels.near().has(suspicion.target);
    const taken = this.#opinions.examine(suspicion, () => this.#charge(peer, 2));
    if (taken === 'forged') return this.#rejected(peer, 'bad_signature');
    if (taken !== 'new' && taken !== 'confirmed') return;
    const believe = () => {
      this.#opinions.believe(suspicion);
      this.#judge?.confirmed(suspicion.target);
      this.#push.tell(suspicion.target, suspicion);
      this.#push.word({ type: 'suspicion', suspicion }, suspicion.target, peer.id);
    };
    // Who is accused and lives must hear of it: others believe the same word until it is refuted.
    const pass = () => this.#push.home({ type: 'suspicion', suspicion }, suspicion.target);
    if (this.#judge !== undefined) return this.#judge.suspicion(suspicion, believe, pass);
    believe();
    // Neighbours look for themselves: what they see too shortens the grace, what they see differently reaches the accused.
    if (wasNear) this.#probes.probe(suspicion.target);
  }

  #refute(peer: Peer, suspicion: Suspicion): void {
    // The accusation need not be true to be answered, but it must be somebody's.
    const taken = this.#opinions.examine(suspicion, () => this.#charge(peer, 2));
    if (taken === 'forged') return this.#rejected(peer, 'bad_signature');
    if (taken === 'refused') return;
    const refutation = taken === 'known' ? undefined : this.#opinions.refute(suspicion);
    if (refutation !== undefined) this.#push.word({ type: 'refutation', refutation }, this.context.me, undefined);
    const answer = refutation ?? this.#opinions.ownRefutation();
    if (answer !== undefined) this.context.out.send(peer.id, { type: 'refutation', refutation: answer });
  }

  #heardRefutation(peer: Peer, refutation: Refutation): void {
    if (refutation.session === this.context.me) return;
    const taken = this.#opinions.hear(refutation, () => this.#charge(peer, 1));
    if (taken === 'forged') return this.#rejected(peer, 'bad_signature');
    if (taken === 'new') this.#push.word({ type: 'refutation', refutation }, refutation.session, peer.id);
  }

  /** Somebody who is suspected speaks, or one who may not know of suspects: tell, so that it can be refuted. */
  #accuseTo(peer: Peer): void {
    const { now, options, out } = this.context;
    if (!this.#opinions.isSuspected(peer.id) || now - peer.toldAt < options.probeMs) return;
    peer.toldAt = now;
    for (const suspicion of this.#opinions.suspicionsOf(peer.id)) out.send(peer.id, { type: 'suspicion', suspicion });
  }

  /** While there are suspects, one at a time is called: else two halves of a cluster would never meet again (weaviate issue 10698). */
  #watchSuspects(): void {
    const { agenda, now, options, rng, self } = this.context;
    if (self.kind === 'gateway' || agenda.has('suspects') || this.#opinions.suspects.size === 0) return;
    agenda.set('suspects', now + options.suspectMs * (0.5 + rng()), () => {
      const suspects = [...this.#opinions.suspects];
      const id = suspects[Math.floor(this.context.rng() * suspects.length)];
      if (id !== undefined && this.context.replica.get(id)?.ticket.cluster === self.cluster) {
        if (this.channels.open.has(id)) this.#pulse.ping(id);
        else this.channels.dial(id);
      }
      this.#watchSuspects();
    });
  }
}

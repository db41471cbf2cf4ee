/**
 * Tests whether a member is alive: with a direct probe, then through helpers on other machines, then through gateways
 * and more helpers. The member is suspected only if all three fail. A path that could not be tried proves nothing
 * (SWIM's indirect probes; Lifeguard's local health).
 */
import type { GossipChannels } from './gossip-channels.ts';
import { clusterRing, type GossipContext, isGateway, memberEntry } from './gossip-context.ts';
import type { PathVerdict, PeerId } from './gossip-events.ts';
import type { LivenessTable } from './liveness-table.ts';
import type { Pinger } from './pinger.ts';

/** Maximum number of members that this node probes for itself at a time. */
const INQUIRIES_MAX = 64;
const INDIRECT_PROBES_MAX = 64;

interface Inquiry {
  target: PeerId;
  stage: 'direct' | 'helpers' | 'relay' | 'elsewhere';
  /**
   * Sequence numbers of the pings to the target. The second ping is sent together with the helpers' probes, so that one
   * lost message changes nothing.
   */
  pings: number[];
  /** True if the direct path was tried: over a channel, or by dialing a peer that had answered before. */
  tried: boolean;
  relay: PathVerdict | undefined;
  /** Verdicts of the helpers asked in this stage, by helper; undefined while pending. */
  verdicts: Map<PeerId, PathVerdict | undefined>;
  asked: Set<PeerId>;
  excused: boolean;
}

/** A probe that another peer requested. */
interface IndirectProbe {
  from: PeerId;
  seq: number;
  target: PeerId;
  ping: number | undefined;
}

export class LivenessProbes {
  readonly #context: GossipContext;
  readonly #channels: GossipChannels;
  readonly #livenessTable: LivenessTable;
  readonly #pinger: Pinger;
  /** Inquiries by target. At most INQUIRIES_MAX. */
  readonly #inquiries = new Map<PeerId, Inquiry>();
  /** Probes that helpers make for this node, by sequence number. Bounded by the helpers of all inquiries. */
  readonly #sent = new Map<number, { inquiry: Inquiry; helper: PeerId }>();
  /** Probes for other peers. At most INDIRECT_PROBES_MAX. */
  readonly #indirectProbes = new Set<IndirectProbe>();
  #seq = 0;
  #health = 0;
  readonly #onSilent: (target: PeerId) => void;

  /** @param onSilent called if all paths to the target failed */
  constructor(
    context: GossipContext,
    channels: GossipChannels,
    livenessTable: LivenessTable,
    pinger: Pinger,
    onSilent: (target: PeerId) => void,
  ) {
    this.#context = context;
    this.#channels = channels;
    this.#livenessTable = livenessTable;
    this.#pinger = pinger;
    this.#onSilent = onSilent;
  }

  /** Probes a member, first over the direct path. Gateways are not probed, because a gateway is never suspected. */
  probe(target: PeerId): void {
    if (isGateway(target) || this.#inquiries.has(target) || this.#inquiries.size >= INQUIRIES_MAX) return;
    if (memberEntry(this.#context, target) === undefined) return;
    const inquiry: Inquiry = {
      target,
      stage: 'direct',
      pings: [],
      tried: false,
      relay: undefined,
      verdicts: new Map(),
      asked: new Set(),
      excused: false,
    };
    this.#inquiries.set(target, inquiry);
    if (this.#channels.open.has(target)) this.#pingDirectly(inquiry);
    else if (!this.#channels.dial(target)) return this.#directFailed(inquiry);
    this.#await(inquiry, this.#directMs());
  }

  #directMs(): number {
    const { directMs, healthMax } = this.#context.options;
    return Math.max(this.#pinger.answers.ms, directMs * Math.min(healthMax, 1 + this.#health));
  }

  /**
   * How long this node waits for its helpers. A helper waits `helperMs` for the target, or longer if the helper's peers
   * are slow. This node does not know how slow they are, so it assumes that they are as slow as its own peers.
   */
  #indirectMs(): number {
    const { indirectMs, directMs } = this.#context.options;
    return indirectMs + 2 * (this.#pinger.answers.ms - directMs);
  }

  #pingDirectly(inquiry: Inquiry): void {
    inquiry.tried = true;
    inquiry.pings.push(this.#pinger.ping(inquiry.target, () => this.#answered(inquiry)));
  }

  #answered(inquiry: Inquiry): void {
    this.#health = Math.max(0, this.#health - 1);
    this.#livenessTable.setReachable(inquiry.target, true);
    this.#end(inquiry);
  }

  #await(inquiry: Inquiry, ms: number): void {
    const { timerQueue, now, options } = this.#context;
    timerQueue.set(`inquiry:${inquiry.target}`, now + ms, (lateMs) => {
      // This process was paused, so the answer may be in its buffers.
      if (lateMs > options.lateMs && !inquiry.excused) {
        inquiry.excused = true;
        this.#health = Math.min(options.healthMax - 1, this.#health + 1);
        return this.#await(inquiry, this.#pinger.answers.ms);
      }
      if (inquiry.stage === 'direct') this.#directFailed(inquiry);
      else this.#decide(inquiry, true);
    });
  }

  opened(peer: PeerId): void {
    const inquiry = this.#inquiries.get(peer);
    if (inquiry !== undefined && inquiry.pings.length === 0) this.#pingDirectly(inquiry);
    for (const probe of this.#indirectProbes) {
      if (probe.target === peer && probe.ping === undefined) this.#pingFor(probe);
    }
  }

  /** @param met true if the peer had answered before, so that a failed dial is evidence */
  dialFailed(peer: PeerId, met: boolean): void {
    const inquiry = this.#inquiries.get(peer);
    if (inquiry?.stage === 'direct' && inquiry.pings.length === 0) {
      inquiry.tried = met;
      this.#directFailed(inquiry);
    }
    for (const probe of this.#indirectProbes) {
      if (probe.target === peer && probe.ping === undefined) this.#report(probe, met ? 'silent' : 'unknown');
    }
  }

  /** A helper with a closed channel has no verdict. */
  closed(peer: PeerId): void {
    for (const [seq, { inquiry, helper }] of this.#sent) {
      if (helper !== peer) continue;
      this.#sent.delete(seq);
      inquiry.verdicts.set(helper, 'unknown');
      this.#decide(inquiry, false);
    }
  }

  #directFailed(inquiry: Inquiry): void {
    const { target } = inquiry;
    // No channel from this node to the target was ever open (its addresses may be private or absent). So the failure is
    // not evidence, and no helper is asked.
    if (!inquiry.tried && !this.#channels.open.has(target) && !this.#channels.met(target)) return this.#end(inquiry);
    this.#livenessTable.markProbeFailed(target);
    inquiry.stage = 'helpers';
    if (this.#channels.open.has(target)) this.#pingDirectly(inquiry);
    this.#askHelpers(inquiry);
    this.#await(inquiry, this.#indirectMs());
  }

  #askHelpers(inquiry: Inquiry): void {
    inquiry.verdicts.clear();
    for (const helper of this.#chooseHelpers(inquiry)) {
      this.#seq = (this.#seq + 1) >>> 0;
      this.#sent.set(this.#seq, { inquiry, helper });
      inquiry.verdicts.set(helper, undefined);
      inquiry.asked.add(helper);
      this.#context.out.send(helper, { type: 'probe', seq: this.#seq, target: inquiry.target });
    }
  }

  /**
   * Chooses the helpers. Members near the target on the ring come first, because they should have a channel to it. If
   * possible, each helper is on another machine.
   */
  #chooseHelpers({ target, asked }: Inquiry): PeerId[] {
    const { options } = this.#context;
    const near = new Set<PeerId>();
    for (const step of [1, -1] as const) {
      let seen = 0;
      for (const id of clusterRing(this.#context)?.from(target, step) ?? []) {
        if (++seen > 2 * options.ringReach) break;
        near.add(id);
      }
    }
    const usable = (id: PeerId) => id !== target && !asked.has(id) && this.#livenessTable.isReachable(id);
    const others = this.#channels.some(this.#channels.open.size, (id) => usable(id) && !near.has(id));
    const candidates = [...near].filter((id) => usable(id) && this.#channels.open.has(id)).concat(others);
    const own = this.#context.self.kind === 'agent' ? this.#context.self.host : '';
    const hosts = new Set([own]);
    const chosen: PeerId[] = [];
    for (const includeSameHost of [false, true]) {
      for (const id of candidates) {
        if (chosen.length >= options.helpers || chosen.includes(id)) continue;
        const host = memberEntry(this.#context, id)?.payload?.host ?? id;
        if (hosts.has(host) && !includeSameHost) continue;
        hosts.add(host);
        chosen.push(id);
      }
    }
    return chosen;
  }

  onVerdict(peer: PeerId, seq: number, verdict: PathVerdict): void {
    const sent = this.#sent.get(seq);
    if (sent?.helper !== peer) return;
    this.#sent.delete(seq);
    sent.inquiry.verdicts.set(peer, verdict);
    this.#decide(sent.inquiry, false);
  }

  gatewayAnswered(target: PeerId, verdict: PathVerdict): void {
    const inquiry = this.#inquiries.get(target);
    if (inquiry?.stage !== 'relay' || inquiry.relay !== undefined) return;
    inquiry.relay = verdict;
    this.#decide(inquiry, false);
  }

  /** @param timeUp true: a pending verdict counts as `unknown` */
  #decide(inquiry: Inquiry, timeUp: boolean): void {
    const { target } = inquiry;
    if (this.#inquiries.get(target) !== inquiry || inquiry.stage === 'direct' || inquiry.stage === 'elsewhere') return;
    const verdicts = [...inquiry.verdicts.values()];
    if (verdicts.includes('alive') || inquiry.relay === 'alive') return this.#onReachedIndirectly(inquiry);
    const waiting = verdicts.includes(undefined);
    const silent = inquiry.tried && verdicts.includes('silent');
    if (inquiry.stage === 'helpers') {
      if (waiting && !timeUp) return;
      if (!silent) return this.#end(inquiry);
      return this.#askGateway(inquiry);
    }
    if (inquiry.relay === undefined && !timeUp) return;
    if (inquiry.relay !== 'silent') {
      // No gateway knows whether the target is alive, so the second set of helpers is the third path. If there are no
      // such helpers, the target is not suspected.
      if (waiting && !timeUp) return;
      if (!silent) return this.#end(inquiry);
    }
    this.#end(inquiry);
    this.#onSilent(target);
  }

  /**
   * Gateways are asked last, because a question to a gateway wakes objects. More helpers are asked at the same time, in
   * case no gateway answers.
   */
  #askGateway(inquiry: Inquiry): void {
    inquiry.stage = 'relay';
    this.#askHelpers(inquiry);
    this.#context.out.act({ type: 'askGateway', target: inquiry.target });
    this.#await(inquiry, Math.max(this.#context.options.gatewayProbeMs, this.#indirectMs()));
  }

  /** Other nodes reach the target and this node does not, so this node may be the slow one. */
  #onReachedIndirectly(inquiry: Inquiry): void {
    const { options, now, timerQueue } = this.#context;
    this.#health = Math.min(options.healthMax - 1, this.#health + 1);
    if (inquiry.relay === 'alive') return this.#notFromHere(inquiry);
    // The answer to the second ping may still arrive.
    inquiry.stage = 'elsewhere';
    timerQueue.set(`inquiry:${inquiry.target}`, now + this.#pinger.answers.ms, () => this.#notFromHere(inquiry));
  }

  #notFromHere(inquiry: Inquiry): void {
    this.#livenessTable.setReachable(inquiry.target, false);
    this.#end(inquiry);
  }

  #end(inquiry: Inquiry): void {
    if (this.#inquiries.get(inquiry.target) === inquiry) this.#inquiries.delete(inquiry.target);
    this.#context.timerQueue.cancel(`inquiry:${inquiry.target}`);
    for (const ping of inquiry.pings) this.#pinger.forget(ping);
    for (const [seq, sent] of this.#sent) if (sent.inquiry === inquiry) this.#sent.delete(seq);
  }

  /** Handles a peer's request to probe `target`. */
  onProbe(from: PeerId, seq: number, target: PeerId): void {
    const { timerQueue, me, now, options, out } = this.#context;
    if (target === me) return out.send(from, { type: 'probed', seq, verdict: 'alive' });
    const probe: IndirectProbe = { from, seq, target, ping: undefined };
    const unknown = memberEntry(this.#context, target) === undefined || this.#context.self.kind === 'gateway';
    if (unknown || this.#indirectProbes.size >= INDIRECT_PROBES_MAX) return this.#report(probe, 'unknown');
    this.#indirectProbes.add(probe);
    if (this.#channels.open.has(target)) this.#pingFor(probe);
    else if (!this.#channels.dial(target)) return this.#report(probe, 'unknown');
    timerQueue.set(`indirect:${from}:${seq}`, now + Math.max(options.helperMs, this.#pinger.answers.ms), (lateMs) => {
      const tried = probe.ping !== undefined || this.#channels.met(target);
      this.#report(probe, tried && lateMs <= options.lateMs ? 'silent' : 'unknown');
    });
  }

  #pingFor(probe: IndirectProbe): void {
    probe.ping = this.#pinger.ping(probe.target, () => this.#report(probe, 'alive'));
  }

  #report(probe: IndirectProbe, verdict: PathVerdict): void {
    this.#indirectProbes.delete(probe);
    this.#context.timerQueue.cancel(`indirect:${probe.from}:${probe.seq}`);
    if (probe.ping !== undefined) this.#pinger.forget(probe.ping);
    if (this.#channels.open.has(probe.from))
      this.#context.out.send(probe.from, { type: 'probed', seq: probe.seq, verdict });
  }
}

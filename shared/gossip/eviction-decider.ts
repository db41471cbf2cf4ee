/**
 * Decides evictions at a gateway: whether a session with a closed tunnel is gone, and when the grace period of a
 * suspected session is over. If too many sessions of a cluster become suspected together, the network is considered
 * faulty, and none of them is evicted. A gateway evicts only sessions of its own issuer.
 */
import type { GossipChannels } from './gossip-channels.ts';
import { type GossipContext, memberEntry } from './gossip-context.ts';
import type { GossipMemory, PathVerdict, PeerId, Suspicion } from './gossip-events.ts';
import { delegateWeight } from './gossip-topology.ts';
import { OBSERVERS_MAX } from './liveness-row.ts';
import type { LivenessTable } from './liveness-table.ts';

/** The examination of a session. Each session has at most one at a time. */
interface Examination {
  session: string;
  relay: PathVerdict | undefined;
  witnesses: Map<PeerId, PathVerdict | undefined>;
  /** Called if neither the session's tunnel nor a witness has reported `alive` by the time limit. */
  onUnreachable: (examination: Examination) => void;
  /** Called if the session's tunnel or a witness has reported `alive`. */
  onReachable: () => void;
}

/** A suspected session, until it refutes the suspicion or leaves. */
interface Suspect {
  cluster: string;
  /** When the grace period began: with the suspicion, or at the end of a freeze. */
  since: number;
  /** True if no other node reported the session silent: only this gateway's own path to it failed. */
  gatewayOnly: boolean;
}

/**
 * Maximum number of sessions that are examined at a time; others wait. An agent runs at most 64 indirect probes at a
 * time and answers `unknown` to further requests, so it could not help with more examinations.
 */
const EXAMINATIONS_MAX = 32;
const LATER_MS = 500;
/** Interval of examinations of suspects in a frozen cluster, and how many are examined each time. */
const FROZEN_EXAM_MS = 5_000;
const FROZEN_EXAMS = 8;

const SUSPECTED_AT_MAX = 4_096;

export class EvictionDecider {
  readonly #context: GossipContext;
  readonly #channels: GossipChannels;
  readonly #livenessTable: LivenessTable;
  /** Sessions with an open tunnel to this gateway. Bounded by the sessions of the replica. */
  readonly #present = new Set<string>();
  /** When each session's tunnel closed. For sessions that a new gateway still waits for, a time in the future. */
  readonly #absent = new Map<string, number>();
  /** Sessions that have not reconnected since this gateway started. */
  readonly #returning = new Set<string>();
  #lastReturn = Number.NEGATIVE_INFINITY;
  readonly #suspects = new Map<string, Suspect>();
  /** The suspected sessions of each cluster that has any. */
  readonly #suspectsOf = new Map<string, Set<string>>();
  /** Running examinations. At most EXAMINATIONS_MAX; others wait. */
  readonly #examinations = new Map<string, Examination>();
  readonly #sent = new Map<number, { examination: Examination; witness: PeerId }>();
  /** When members became suspected, by cluster, oldest first: at most SUSPECTED_AT_MAX times within `freezeWindowMs`. */
  readonly #suspectedAt = new Map<string, number[]>();
  readonly #frozen = new Map<string, number>();
  #seq = 0;

  constructor(context: GossipContext, channels: GossipChannels, livenessTable: LivenessTable) {
    this.#context = context;
    this.#channels = channels;
    this.#livenessTable = livenessTable;
  }

  /**
   * @param memory saved state of an object that hibernated. If undefined, this gateway is new and waits for all members
   * to reconnect.
   */
  start(memory: GossipMemory | undefined): void {
    const { now, options } = this.#context;
    for (const [cluster, until] of memory?.frozen ?? []) this.#freeze(cluster, until);
    for (const { session, since, lonely: gatewayOnly } of memory?.suspects ?? []) {
      this.#addSuspect(session, { cluster: this.#clusterOf(session), since, gatewayOnly });
      if (!this.#livenessTable.isSuspected(session)) this.#livenessTable.suspectLocally(session);
      this.#setGrace(session);
    }
    for (const [session, since] of memory?.absent ?? []) this.#watch(session, since);
    if (memory !== undefined) return;
    for (const entry of this.#context.replica.entries(this.#issuer())) {
      if (entry.state === 'LEFT') continue;
      this.#returning.add(entry.session);
      this.#watch(entry.session, now + 5 * options.reconnectMs);
    }
  }

  /** Sets the running timers again with the new settings. Their periods still start at the same times. */
  resetTimers(): void {
    for (const session of this.#suspects.keys()) this.#setGrace(session);
    for (const [session, since] of this.#absent)
      if (this.#context.timerQueue.has(`absent:${session}`)) this.#watch(session, since);
  }

  #issuer(): string {
    return this.#context.self.kind === 'gateway' ? this.#context.self.issuer : '';
  }

  remember(): Pick<GossipMemory, 'suspects' | 'absent' | 'frozen'> {
    return {
      suspects: [...this.#suspects].map(([session, { since, gatewayOnly }]) => ({
        session,
        since,
        lonely: gatewayOnly,
      })),
      absent: [...this.#absent],
      frozen: [...this.#frozen],
    };
  }

  tunnel(session: string, open: boolean): void {
    const { timerQueue, now } = this.#context;
    if (!open) {
      this.#present.delete(session);
      if (memberEntry(this.#context, session) !== undefined) this.#watch(session, now);
      return;
    }
    this.#present.add(session);
    this.#absent.delete(session);
    if (this.#returning.delete(session)) this.#lastReturn = this.#context.now;
    timerQueue.cancel(`absent:${session}`);
    // The session has just proved its key to this gateway, or has sent something on a tunnel on which it proved its key
    // before.
    const examination = this.#examinations.get(session);
    this.#endExamination(session);
    this.#livenessTable.clearSuspicion(session);
    this.#livenessTable.setReachable(session, true);
    examination?.onReachable();
  }

  #watch(session: string, since: number): void {
    this.#absent.set(session, since);
    const at = since + this.#context.options.reconnectMs;
    this.#context.timerQueue.set(`absent:${session}`, at, () => this.#stayedAbsent(session));
  }

  /**
   * Examines the session, unless others still reconnect after the start of this gateway: examinations of thousands that
   * wait for their turn would only delay them.
   */
  #stayedAbsent(session: string): void {
    const { now, options } = this.#context;
    if (this.#returning.has(session) && now - this.#lastReturn < options.reconnectMs) return this.#watch(session, now);
    this.#returning.delete(session);
    this.examine(session);
  }

  #clusterOf(session: string): string {
    return this.#context.replica.get(session)?.ticket.cluster ?? '';
  }

  #addSuspect(session: string, suspect: Suspect): void {
    this.#suspects.set(session, suspect);
    const { cluster } = suspect;
    const others = this.#suspectsOf.get(cluster);
    if (others === undefined) this.#suspectsOf.set(cluster, new Set([session]));
    else others.add(session);
  }

  /**
   * Examines a session that did not answer, or has no tunnel any more: asks the object of the session's tunnel, and
   * members of its cluster.
   */
  examine(session: string): void {
    this.#startExamination(session, (examination) => {
      const silentVotes = [...examination.witnesses.values()].filter((verdict) => verdict === 'silent').length;
      this.#suspectLocally(session, silentVotes === 0);
    });
  }

  /**
   * Handles an observer's signed suspicion, which is believed unless the session's tunnel or a witness reports `alive`.
   */
  suspicion(suspicion: Suspicion, onUnreachable: () => void, onReachable: () => void): void {
    const { target } = suspicion;
    if (this.#suspects.has(target)) return onUnreachable();
    this.#startExamination(
      target,
      () => {
        onUnreachable();
        this.#suspect(target, false);
      },
      onReachable,
    );
  }

  #suspectLocally(session: string, gatewayOnly: boolean): void {
    this.#livenessTable.suspectLocally(session);
    this.#suspect(session, gatewayOnly);
  }

  #suspect(session: string, gatewayOnly: boolean): void {
    const known = this.#suspects.get(session);
    const cluster = known?.cluster ?? this.#clusterOf(session);
    if (known === undefined) this.#countSuspicion(cluster);
    this.#addSuspect(session, {
      cluster,
      since: known?.since ?? this.#context.now,
      gatewayOnly: gatewayOnly && known?.gatewayOnly !== false,
    });
    this.#setGrace(session);
    if (this.#frozen.has(cluster)) this.#examineFrozen(cluster);
  }

  /** Call when another observer has confirmed a suspicion, because the grace period may then end sooner. */
  confirmed(session: string): void {
    if (this.#suspects.has(session)) this.#setGrace(session);
  }

  /** Call when the session is no longer suspected, or has left. */
  cleared(session: string): void {
    const cluster = this.#suspects.get(session)?.cluster ?? '';
    this.#suspects.delete(session);
    const others = this.#suspectsOf.get(cluster);
    others?.delete(session);
    if (others?.size === 0) this.#suspectsOf.delete(cluster);
    this.#context.timerQueue.cancel(`grace:${session}`);
  }

  remove(session: string): void {
    this.cleared(session);
    this.#absent.delete(session);
    this.#returning.delete(session);
    this.#present.delete(session);
    this.#context.timerQueue.cancel(`absent:${session}`);
    this.#endExamination(session);
  }

  /**
   * The grace period is shorter if more observers agree: max − (max − min) · ln(C + 1) / ln 3, with C observers in
   * addition to the first (Lifeguard §IV-B).
   */
  #graceMs(session: string, { cluster, gatewayOnly }: Suspect): number {
    const { graceMinMs, graceMaxFactor, graceLonelyFactor } = this.#context.options;
    const members = this.#context.rings.get(cluster)?.size ?? 0;
    const min = Math.max(graceMinMs, 4000 * Math.log10(Math.max(1, members)));
    const max = min * graceMaxFactor;
    if (gatewayOnly) return max * graceLonelyFactor;
    const others = Math.max(0, Math.min(OBSERVERS_MAX, this.#livenessTable.observers(session)) - 1);
    return max - ((max - min) * Math.log(others + 1)) / Math.log(3);
  }

  /** Starts the grace period, or changes it. In a frozen cluster it starts at the end of the freeze. */
  #setGrace(session: string): void {
    const suspect = this.#suspects.get(session);
    const entry = memberEntry(this.#context, session);
    if (suspect === undefined || entry === undefined || entry.issuer !== this.#issuer()) return;
    if (this.#frozen.has(suspect.cluster)) return;
    const at = suspect.since + this.#graceMs(session, suspect);
    this.#context.timerQueue.set(`grace:${session}`, at, () => this.#graceOver(session));
  }

  #graceOver(session: string): void {
    if (memberEntry(this.#context, session) === undefined || !this.#suspects.has(session)) return;
    this.#startExamination(session, () => {
      const suspect = this.#suspects.get(session);
      if (suspect === undefined) return;
      if (!this.#frozen.has(suspect.cluster)) this.#context.out.act({ type: 'evict', session });
    });
  }

  /**
   * Eureka's rule: many suspected sessions together mean a network fault. Evicting them could empty the registry
   * because one switch failed.
   */
  #countSuspicion(cluster: string): void {
    const { freezeMin, freezeMs, freezeShare, freezeWindowMs } = this.#context.options;
    const { now } = this.#context;
    const times = this.#suspectedAt.get(cluster) ?? [];
    times.push(now);
    const old = times.findIndex((at) => now - at < freezeWindowMs);
    times.splice(0, Math.max(old, times.length - SUSPECTED_AT_MAX));
    this.#suspectedAt.set(cluster, times);
    const members = (this.#context.rings.get(cluster)?.size ?? 0) + (this.#suspectsOf.get(cluster)?.size ?? 0);
    if (times.length < freezeMin || times.length <= freezeShare * members) return;
    this.#freeze(cluster, now + freezeMs);
  }

  /** Suspects of a frozen cluster have no timers, because thousands of them would be set again with each new suspect. */
  #freeze(cluster: string, until: number): void {
    const { timerQueue, out } = this.#context;
    if (!this.#frozen.has(cluster)) {
      out.act({ type: 'notice', notice: { what: 'frozen', cluster, until } });
      for (const session of this.#suspectsOf.get(cluster) ?? []) timerQueue.cancel(`grace:${session}`);
    }
    this.#frozen.set(cluster, until);
    timerQueue.set(`thaw:${cluster}`, until, () => this.#thaw(cluster));
    this.#examineFrozen(cluster);
  }

  /**
   * Examines the suspects of a frozen cluster in turn, so that those that answer again get requests before the thaw. No
   * grace period ends for them with an examination, and a suspicion that only this gateway has cannot be refuted.
   */
  #examineFrozen(cluster: string): void {
    const { timerQueue, now } = this.#context;
    if (timerQueue.has(`frozen:${cluster}`)) return;
    timerQueue.set(`frozen:${cluster}`, now + FROZEN_EXAM_MS, () => {
      const suspects = this.#suspectsOf.get(cluster);
      if (suspects === undefined || !this.#frozen.has(cluster)) return;
      this.#examineFrozen(cluster);
      for (const session of [...suspects].slice(0, FROZEN_EXAMS)) {
        suspects.delete(session);
        suspects.add(session);
        if (this.#examinations.size < EXAMINATIONS_MAX) this.#startExamination(session, () => {});
      }
    });
  }

  /** Grace periods start now, because updates travel slowly while a network heals. */
  #thaw(cluster: string): void {
    this.#frozen.delete(cluster);
    for (const session of this.#suspectsOf.get(cluster) ?? []) {
      const suspect = this.#suspects.get(session);
      if (suspect !== undefined) suspect.since = this.#context.now;
      this.#setGrace(session);
    }
    this.#context.out.act({ type: 'notice', notice: { what: 'thawed', cluster } });
  }

  #startExamination(
    session: string,
    onUnreachable: (examination: Examination) => void,
    onReachable: () => void = () => {},
  ): void {
    const { timerQueue, now, options, out, me, rng } = this.#context;
    if (this.#examinations.has(session) || memberEntry(this.#context, session) === undefined) return;
    if (this.#examinations.size >= EXAMINATIONS_MAX)
      return timerQueue.set(`later:${session}`, now + LATER_MS * (1 + 3 * rng()), () =>
        this.#startExamination(session, onUnreachable, onReachable),
      );
    const examination: Examination = { session, relay: undefined, witnesses: new Map(), onUnreachable, onReachable };
    this.#examinations.set(session, examination);
    out.act({ type: 'askGateway', target: session });
    const cluster = this.#context.replica.get(session)?.ticket.cluster;
    const witnesses = this.#channels
      .agents()
      .map((peer) => peer.id)
      .filter((id) => id !== session && memberEntry(this.#context, id)?.ticket.cluster === cluster)
      .sort((a, b) => delegateWeight(a, me) - delegateWeight(b, me));
    for (const witness of witnesses.slice(0, options.helpers)) {
      this.#seq = (this.#seq + 1) >>> 0;
      examination.witnesses.set(witness, undefined);
      this.#sent.set(this.#seq, { examination: examination, witness });
      out.send(witness, { type: 'probe', seq: this.#seq, target: session });
    }
    timerQueue.set(`trial:${session}`, now + options.gatewayProbeMs, () => this.#decide(examination, true));
  }

  gatewayAnswered(session: string, verdict: PathVerdict): void {
    const examination = this.#examinations.get(session);
    if (examination === undefined || examination.relay !== undefined) return;
    examination.relay = verdict;
    this.#decide(examination, false);
  }

  onVerdict(peer: PeerId, seq: number, verdict: PathVerdict): void {
    const sent = this.#sent.get(seq);
    if (sent?.witness !== peer) return;
    this.#sent.delete(seq);
    sent.examination.witnesses.set(peer, verdict);
    this.#decide(sent.examination, false);
  }

  #decide(examination: Examination, timeUp: boolean): void {
    const { session } = examination;
    if (this.#examinations.get(session) !== examination) return;
    if (examination.relay === 'alive') {
      this.#endExamination(session);
      this.#livenessTable.clearSuspicion(session);
      return examination.onReachable();
    }
    const verdicts = [...examination.witnesses.values()];
    if (!timeUp && (examination.relay === undefined || verdicts.includes(undefined))) return;
    this.#endExamination(session);
    if (verdicts.includes('alive')) {
      // The session's neighbors reach it and this gateway does not, which does not justify an eviction. The neighbors
      // will report if they no longer reach it.
      this.#livenessTable.clearSuspicion(session);
      if (!this.#present.has(session)) this.#livenessTable.setReachable(session, false);
      return examination.onReachable();
    }
    examination.onUnreachable(examination);
  }

  #endExamination(session: string): void {
    const examination = this.#examinations.get(session);
    if (examination === undefined) return;
    this.#examinations.delete(session);
    this.#context.timerQueue.cancel(`trial:${session}`);
    for (const [seq, sent] of this.#sent) if (sent.examination === examination) this.#sent.delete(seq);
  }
}

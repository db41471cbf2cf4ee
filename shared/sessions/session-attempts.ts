import { AbandonedAttempts } from '../attempts/abandoned-attempts.ts';
import { newAcceptTimeout } from '../attempts/accept-timeout.ts';
import type { AttemptBody, AttemptFailure, AttemptRequest } from '../attempts/attempt-request.ts';
import { HangWatch } from '../attempts/hang-watch.ts';
import { OutboundAttempt, type OutboundAttemptHost } from '../attempts/outbound-attempt.ts';
import { parkStalledResponses } from '../attempts/park-stalled-responses.ts';
import { TransientMap } from '../collections/transient-map.ts';
import type { PeerEvidence } from '../routing/hang/hang-detector.ts';
import type { HangSuspicion } from '../routing/hang/hang-suspicion.ts';
import type { NodeLoad } from '../routing/node-load.ts';
import type { UsageSettlement } from '../usage/usage-settlement.ts';
import type { Frame } from '../wire/frames.ts';
import type { Link } from '../wire/link.ts';
import { StrayFrames } from './stray-frames.ts';

export type ReportFrame = Extract<Frame, { type: 'report' }>;

interface SessionAttemptsHost {
  /** Milliseconds of a monotonic clock. */
  now(): number;
  /** The same for deadlines, from `WaitClock`. */
  patientNow(): number;
  /** A number that no stream of the session has had. */
  nextStream(): number;
  /** Frames of unknown streams that one link may bring. An honest node sends a few for each stream of a lost link. */
  readonly unknownMax: number;
  /** Failures that this side detected; the node is told to stop. */
  readonly resets: ReadonlySet<AttemptFailure>;
  /** The load that the node last reported for its engine, if the host receives it. */
  load?(): NodeLoad | undefined;
  /** A report arrived. The host passes it to `settle`, or refuses it. */
  onReport(report: ReportFrame, upstream: OutboundAttempt | undefined): void;
  /** An attempt ended, and its settlement has begun. */
  onOver(upstream: OutboundAttempt, failure: AttemptFailure | undefined): void;
  /** The engine answers no request: the host must call `judge` with the evidence of other nodes. */
  compare(): void;
  /** The engine is suspected to hang. Undefined: it answers again. */
  onSuspicion(suspicion: HangSuspicion | undefined): void;
}

/**
 * All open attempts at one node session, for a gateway or an agent's ingress: opened, carried by one link after
 * another, watched for a hung engine, and settled when they end.
 */
export class SessionAttempts implements OutboundAttemptHost {
  readonly accepts = newAcceptTimeout();
  readonly settlement: UsageSettlement;
  readonly #host: SessionAttemptsHost;
  /** By stream number. */
  readonly #attempts = new TransientMap<number, OutboundAttempt>();
  readonly #abandoned = new AbandonedAttempts();
  readonly #stray: StrayFrames;
  readonly #hangs: HangWatch;
  #link: Link | undefined;

  /** `suspicion`: carried over from the session's previous object. */
  constructor(settlement: UsageSettlement, host: SessionAttemptsHost, suspicion?: HangSuspicion) {
    this.settlement = settlement;
    this.#host = host;
    this.#stray = new StrayFrames(settlement, this.#abandoned, host.unknownMax);
    this.#hangs = new HangWatch(
      {
        now: () => host.patientNow(),
        compare: () => host.compare(),
        onSuspicion: (changed) => host.onSuspicion(changed),
      },
      suspicion,
    );
  }

  /** True if nothing is open and nothing is left to settle. */
  get idle(): boolean {
    return this.#attempts.size === 0 && this.settlement.idle;
  }

  /** Number of open attempts. */
  get size(): number {
    return this.#attempts.size;
  }

  get(stream: number): OutboundAttempt | undefined {
    return this.#attempts.get(stream);
  }

  /** Open attempts. They may end, and others begin, while the caller iterates. */
  values(): Iterable<OutboundAttempt> {
    return this.#attempts.values();
  }

  now(): number {
    return this.#host.now();
  }

  patientNow(): number {
    return this.#host.patientNow();
  }

  load(): NodeLoad | undefined {
    return this.#host.load?.();
  }

  /** False if the engine is suspected to hang, and another node can serve the request. */
  admits(request: AttemptRequest): boolean {
    return this.#hangs.admits(request);
  }

  /** Opens an attempt, on the link if there is one, otherwise on the next. */
  open(request: AttemptRequest, body: AttemptBody): OutboundAttempt {
    const upstream = new OutboundAttempt(this.#host.nextStream(), request, body, this);
    this.#attempts.set(upstream.stream, upstream);
    this.#hangs.opened(upstream);
    if (this.#link !== undefined) upstream.connect(this.#link);
    return upstream;
  }

  /**
   * A link to the session is open. It brings what was abandoned meanwhile to an end, and then carries the attempts.
   * `renumbers`: stream numbers of an earlier link may belong to the other end on this one.
   */
  connect(link: Link, renumbers = false): void {
    this.#link = link;
    this.#stray.connect();
    this.#abandoned.tell(
      link,
      () => this.#host.nextStream(),
      (from, to) => this.settlement.moved(from, to),
    );
    for (const upstream of [...this.#attempts.values()]) {
      if (renumbers) upstream.stream = this.renumber(upstream);
      upstream.connect(link);
    }
  }

  /** The link was lost. */
  disconnect(): void {
    this.#link = undefined;
    for (const upstream of this.#attempts.values()) upstream.disconnect();
  }

  /** Handles a frame of a stream. `touched` collects the attempts that have work to do at the end of the message. */
  onFrame(link: Link, frame: Extract<Frame, { stream: number }>, touched: Set<OutboundAttempt>): void {
    const upstream = link === this.#link ? this.#attempts.get(frame.stream) : undefined;
    if (frame.type === 'report') return this.#host.onReport(frame, upstream);
    if (upstream === undefined) return this.#stray.receive(link, frame, this.now());
    touched.add(upstream);
    upstream.onFrame(frame);
  }

  /** Settles a report. Returns true if the engine completed an attempt after its request went to another node. */
  settle(report: ReportFrame, upstream: OutboundAttempt | undefined): boolean {
    const { stream, usage, name, timings } = report;
    const isDouble = this.#abandoned.confirmed(stream, usage.complete, name);
    if (name !== undefined) this.settlement.named({ stream, usage, name, timings }, upstream, this.now());
    else this.settlement.report(stream, usage, upstream, this.now());
    return isDouble;
  }

  /** A report of an attempt that this side did not make: it is not counted, and the node may forget it. */
  refuse({ stream, usage, name }: ReportFrame): void {
    this.#abandoned.confirmed(stream, usage.complete, name);
    this.#link?.put({ type: 'settled', streams: [stream] });
  }

  onFirstByte(upstream: OutboundAttempt): void {
    this.#hangs.onFirstByte(upstream);
  }

  onOver(upstream: OutboundAttempt, failure: AttemptFailure | undefined): void {
    this.#attempts.delete(upstream.stream);
    this.#hangs.onOver(upstream, failure);
    this.settlement.ended(upstream, failure, this.now());
    this.#abandoned.ended(upstream, failure);
    this.#host.onOver(upstream, failure);
    if (failure !== undefined && this.#host.resets.has(failure))
      this.#link?.put({ type: 'reset', stream: upstream.stream, code: 'cancelled', message: '' });
  }

  renumber(upstream: OutboundAttempt): number {
    this.#attempts.delete(upstream.stream);
    this.settlement.renumbered(upstream.stream);
    const stream = this.#host.nextStream();
    this.#attempts.set(stream, upstream);
    return stream;
  }

  /** Call periodically while attempts are open, with the host's `patientNow`. */
  tick(now: number): void {
    parkStalledResponses(this.#link, this.#attempts.values(), now);
    for (const upstream of this.#attempts.values()) upstream.tick(now);
    this.#hangs.tick(this.#attempts.values(), this.#link !== undefined);
  }

  /** Judges this session's engine by what its peers observe of their engines. */
  judge(peers: readonly PeerEvidence[]): void {
    this.#hangs.judge(peers, this.#attempts.values());
  }

  /** What this session shows of its engine, for the judgment of a peer. */
  asPeer(): PeerEvidence {
    return this.#hangs.asPeer();
  }
}

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
  /** Milliseconds for deadlines, from `WaitClock`. */
  patientNow(): number;
  /** Returns a number that no stream of the session has used. */
  nextStream(): number;
  /**
   * Maximum number of frames of unknown streams per link. An honest node sends a few for each stream that was open on a
   * lost link.
   */
  readonly unknownMax: number;
  /** Failures that this side detects. After them the node gets a RESET. */
  readonly resets: ReadonlySet<AttemptFailure>;
  /**
   * The node's last report about the load of its engine; undefined if there is none. Absent if the host does not
   * receive such reports.
   */
  load?(): NodeLoad | undefined;
  /** Called when a report has arrived. The host passes it to `settle`, or to `refuse`. */
  onReport(report: ReportFrame, outbound: OutboundAttempt | undefined): void;
  /** Called when an attempt has ended and its settlement has begun. */
  onOver(outbound: OutboundAttempt, failure: AttemptFailure | undefined): void;
  /** Called when the engine answers no request. The host must then call `judge` with the evidence of other nodes. */
  compare(): void;
  /** Called when it is suspected that the engine hangs; with undefined when it answers again. */
  onSuspicion(suspicion: HangSuspicion | undefined): void;
}

/**
 * All open attempts at one node session, of a gateway or of an agent's ingress. It opens them, carries them from one
 * link to the next, watches for a hung engine, and settles their usage when they end.
 */
export class SessionAttempts implements OutboundAttemptHost {
  readonly accepts = newAcceptTimeout();
  readonly settlement: UsageSettlement;
  readonly #host: SessionAttemptsHost;
  /** Open attempts by stream number. */
  readonly #attempts = new TransientMap<number, OutboundAttempt>();
  readonly #abandoned = new AbandonedAttempts();
  readonly #stray: StrayFrames;
  readonly #hangs: HangWatch;
  #link: Link | undefined;

  /** `suspicion`: the suspicion of the session's previous object, if that object had one. */
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

  /** True if no attempt is open, and none remains to be settled. */
  get idle(): boolean {
    return this.#attempts.size === 0 && this.settlement.idle;
  }

  get size(): number {
    return this.#attempts.size;
  }

  get(stream: number): OutboundAttempt | undefined {
    return this.#attempts.get(stream);
  }

  /** Open attempts. Attempts may end and others begin while the caller iterates. */
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

  /** False if the engine may hang and another node can take the request. */
  admits(request: AttemptRequest): boolean {
    return this.#hangs.admits(request);
  }

  /** Opens an attempt on the current link. If there is none, the attempt is opened on the next link. */
  open(request: AttemptRequest, body: AttemptBody): OutboundAttempt {
    const outbound = new OutboundAttempt(this.#host.nextStream(), request, body, this);
    this.#attempts.set(outbound.stream, outbound);
    this.#hangs.opened(outbound);
    if (this.#link !== undefined) outbound.connect(this.#link);
    return outbound;
  }

  /**
   * Call when a link to the session is open. First cancels the attempts that were abandoned without a link, then
   * continues the open ones. `renumbers`: true if open attempts must get new stream numbers, because the other end may
   * use their old numbers on this link. A held attempt waits for `reconnect`: its caller may be getting the response by
   * another link, which would lose it if this one claimed it.
   */
  connect(link: Link, renumbers = false): void {
    this.#link = link;
    this.#stray.connect();
    this.#abandoned.tell(
      link,
      () => this.#host.nextStream(),
      (from, to) => this.settlement.moved(from, to),
    );
    for (const outbound of [...this.#attempts.values()]) {
      if (outbound.listener.held) continue;
      if (renumbers) outbound.stream = this.renumber(outbound);
      outbound.connect(link);
    }
  }

  /** Call when a caller of a held attempt has come. Continues the attempt if the link was lost in the meantime. */
  reconnect(outbound: OutboundAttempt): void {
    if (this.#link !== undefined && !outbound.connected && !outbound.over) outbound.connect(this.#link);
  }

  /** Call when the link was lost. */
  disconnect(): void {
    this.#link = undefined;
    for (const outbound of this.#attempts.values()) outbound.disconnect();
  }

  /** Handles a frame of a stream. `touched` collects the attempts that must run `onMessageEnd` after the message. */
  onFrame(link: Link, frame: Extract<Frame, { stream: number }>, touched: Set<OutboundAttempt>): void {
    const outbound = link === this.#link ? this.#attempts.get(frame.stream) : undefined;
    if (frame.type === 'report') return this.#host.onReport(frame, outbound);
    if (outbound === undefined) return this.#stray.receive(link, frame, this.now());
    touched.add(outbound);
    outbound.onFrame(frame);
  }

  /**
   * Settles a report. Returns true if the engine completed an attempt although its request had moved to another node.
   */
  settle(report: ReportFrame, outbound: OutboundAttempt | undefined): boolean {
    const { stream, usage, name, timings } = report;
    const isDouble = this.#abandoned.confirmed(stream, usage.complete, name);
    if (name !== undefined) this.settlement.named({ stream, usage, name, timings }, outbound, this.now());
    else this.settlement.report(stream, usage, outbound, this.now());
    return isDouble;
  }

  /**
   * Discards a report on an attempt that this side did not make. The report is not counted, and the node is told that
   * it may forget it.
   */
  refuse({ stream, usage, name }: ReportFrame): void {
    this.#abandoned.confirmed(stream, usage.complete, name);
    this.#link?.put({ type: 'settled', streams: [stream] });
  }

  onFirstByte(outbound: OutboundAttempt): void {
    this.#hangs.onFirstByte(outbound);
  }

  onOver(outbound: OutboundAttempt, failure: AttemptFailure | undefined): void {
    this.#attempts.delete(outbound.stream);
    this.#hangs.onOver(outbound, failure);
    this.settlement.ended(outbound, failure, this.now());
    this.#abandoned.ended(outbound, failure);
    this.#host.onOver(outbound, failure);
    if (failure !== undefined && this.#host.resets.has(failure))
      this.#link?.put({ type: 'reset', stream: outbound.stream, code: 'cancelled', message: '' });
  }

  renumber(outbound: OutboundAttempt): number {
    this.#attempts.delete(outbound.stream);
    this.settlement.renumbered(outbound.stream);
    const stream = this.#host.nextStream();
    this.#attempts.set(stream, outbound);
    return stream;
  }

  /** Call periodically while attempts are open, with the host's `patientNow`. */
  tick(now: number): void {
    parkStalledResponses(this.#link, this.#attempts.values(), now);
    for (const outbound of this.#attempts.values()) outbound.tick(now);
    this.#hangs.tick(this.#attempts.values(), this.#link !== undefined);
  }

  /** Decides whether this session's engine hangs, with the evidence of other sessions. */
  judge(peers: readonly PeerEvidence[]): void {
    this.#hangs.judge(peers, this.#attempts.values());
  }

  /** This session's evidence, for deciding about another session. */
  asPeer(): PeerEvidence {
    return this.#hangs.asPeer();
  }
}

import { LOCAL_ABANDONMENTS } from '../../../shared/attempts/abandoned-attempts.ts';
import { AttemptError } from '../../../shared/attempts/attempt-error.ts';
import type { AttemptBody, AttemptFailure, AttemptRequest } from '../../../shared/attempts/attempt-request.ts';
import { SUSPECTED_REASON } from '../../../shared/attempts/hang-watch.ts';
import type { OutboundAttempt } from '../../../shared/attempts/outbound-attempt.ts';
import { PeerWatchdog } from '../../../shared/attempts/peer-watchdog.ts';
import type { PeerEvidence } from '../../../shared/routing/hang/hang-detector.ts';
import type { HangSuspicion } from '../../../shared/routing/hang/hang-suspicion.ts';
import type { EngineLoad } from '../../../shared/routing/node-load.ts';
import { type ReportFrame, SessionAttempts } from '../../../shared/sessions/session-attempts.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import type { UsageRecord } from '../../../shared/usage/usage-record.ts';
import { UsageSettlement } from '../../../shared/usage/usage-settlement.ts';
import { AttemptReader } from './attempt-reader.ts';
import { LIVENESS_CLAIM, PEER_QUIET_MS } from './peer-liveness-probe.ts';
import { RecentRequests } from './recent-requests.ts';
import type { ChannelSource, RequestChannel, StreamFrame } from './request-channel.ts';

/**
 * Maximum number of frames on one channel that belong to no known stream. An honest peer sends only a few for each of
 * its streams, after a channel was lost.
 */
const UNKNOWN_MAX = 10_000;

/** A lost channel is dialed again immediately, and after each failure again after this time. */
const REDIAL_MS = 400;

/**
 * Maximum number of consecutive failed redials of a channel that this end dialed. Then the peer counts as gone, and its
 * responses are lost.
 */
const REDIALS_MAX = 3;

export interface ChannelAttemptsHost {
  readonly channels: ChannelSource;
  now(): number;
  /** Milliseconds of the clock for deadlines; see `WaitClock`. */
  patientNow(): number;
  /** Returns a stream number that never repeats within this process; odd if this end dialed. */
  nextStream(dialled: boolean): number;
  /** Called if the session has a channel and did not acknowledge an attempt. */
  onSilent(session: string): void;
  /** Called with the load of the session's engine. */
  onLoad(session: string, load: EngineLoad): void;
  /**
   * Called if the engine does not answer requests. The host must call `judge` with the evidence of other nodes of the
   * model.
   */
  compare(peer: ChannelAttempts): void;
  /**
   * Called if the engine counts as hanging, so that it gets no requests for `pauseMs`; undefined: the engine answers
   * again.
   */
  onHang(session: string, pauseMs: number | undefined): void;
}

/** All requests to one session: its attempts, and the channel that carries them. */
export class ChannelAttempts {
  readonly session: string;
  readonly #host: ChannelAttemptsHost;
  readonly #attempts: SessionAttempts;
  readonly #touched = new Set<OutboundAttempt>();
  readonly #recent = new RecentRequests();
  /** Open channels to the session. The first of them carries the streams. */
  readonly #channels = new Set<RequestChannel>();
  #active: RequestChannel | undefined;
  #dialling = false;
  #redialAt: number | undefined;
  #redials = 0;
  readonly #watchdog = new PeerWatchdog(PEER_QUIET_MS, PEER_QUIET_MS);

  constructor(session: string, host: ChannelAttemptsHost) {
    this.session = session;
    this.#host = host;
    this.#attempts = new SessionAttempts(new UsageSettlement(session), {
      now: host.now,
      patientNow: host.patientNow,
      nextStream: () => host.nextStream(this.#active?.dialled ?? true),
      unknownMax: UNKNOWN_MAX,
      resets: LOCAL_ABANDONMENTS,
      onReport: (report, outbound) => this.#onReport(report, outbound),
      onOver: (_upstream, failure) => this.#onOver(failure),
      compare: () => host.compare(this),
      onSuspicion: (suspicion) => this.#onSuspicion(suspicion),
    });
  }

  /** True if no attempt is open, no usage is left to settle, and there is no channel. */
  get idle(): boolean {
    return !this.busy && this.#channels.size === 0 && !this.#dialling;
  }

  /** Number of running attempts. */
  get openCount(): number {
    return this.#attempts.size;
  }

  /** True if an attempt is open, or usage is not settled. */
  get busy(): boolean {
    return !this.#attempts.idle;
  }

  /** @throws AttemptError if the engine is suspected to hang */
  ask(request: AttemptRequest, body: AttemptBody): AttemptReader {
    if (!this.#attempts.admits(request)) throw new AttemptError('suspected', SUSPECTED_REASON);
    if (this.#attempts.size === 0) this.#watchdog.onReceived(this.#host.patientNow());
    this.#recent.add(request);
    const attempt = new AttemptReader(this.#attempts.open(request, body));
    if (this.#active === undefined) this.#dial();
    return attempt;
  }

  /** True if both peers were asked for the same model. */
  isLike(other: ChannelAttempts): boolean {
    return this.#recent.isLike(other.#recent);
  }

  asPeer(): PeerEvidence {
    return this.#attempts.asPeer();
  }

  judge(peers: readonly PeerEvidence[]): void {
    this.#attempts.judge(peers);
  }

  #onSuspicion(suspicion: HangSuspicion | undefined): void {
    this.#host.onHang(this.session, suspicion && suspicion.until - this.#host.patientNow());
  }

  #dial(): void {
    if (this.#dialling) return;
    this.#dialling = true;
    this.#redialAt = undefined;
    this.#host.channels.channelTo(this.session).then(
      (channel) => {
        this.#dialling = false;
        // The mesh has already passed this channel to `onChannel`. If the channel ended immediately, the mesh has
        // reported that too.
        if (channel.closed) this.#onDialFailed('the channel was lost immediately');
        else this.onChannel(channel);
      },
      (error: unknown) => {
        this.#dialling = false;
        this.#onDialFailed(errorText(error), isRefused(error));
      },
    );
  }

  /** @param gone true if the peer no longer listens; a session that ended never returns */
  #onDialFailed(reason: string, gone = false): void {
    if (this.#active !== undefined) return; // the peer has dialed this end meanwhile
    const hopeless = ++this.#redials >= REDIALS_MAX || gone;
    for (const outbound of [...this.#attempts.values()]) {
      if (!outbound.accepted) outbound.fail('unreachable', reason);
      else if (hopeless) outbound.disconnect(0);
    }
    if (this.#attempts.size > 0 && !hopeless) this.#redialAt = this.#host.patientNow() + REDIAL_MS;
  }

  onChannel(channel: RequestChannel): void {
    if (channel.closed) return;
    this.#channels.add(channel);
    if (this.#active === undefined) this.#activate(channel);
  }

  #activate(channel: RequestChannel): void {
    this.#active = channel;
    this.#watchdog.onReceived(this.#host.patientNow());
    this.#redials = 0;
    this.#redialAt = undefined;
    // The streams get new numbers, because the end that dialed uses odd numbers, and the other end may have dialed the
    // new channel.
    this.#attempts.connect(channel.link, true);
  }

  onChannelClosed(channel: RequestChannel): void {
    this.#channels.delete(channel);
    if (this.#active !== channel) return;
    this.#active = undefined;
    this.#attempts.disconnect();
    const [next] = this.#channels;
    if (next !== undefined) return this.#activate(next);
    // A peer that dialed us may be unreachable for our dials, so failed redials do not count. Either the peer dials
    // again, or its attempts end at their deadline.
    this.#redials = channel.dialled ? 0 : Number.NEGATIVE_INFINITY;
    if (this.#attempts.size > 0) this.#dial();
  }

  onFrame(channel: RequestChannel, frame: StreamFrame): void {
    if (frame.type === 'settled') return;
    if (frame.type === 'load') return this.#host.onLoad(this.session, frame);
    if (channel === this.#active) this.#watchdog.onReceived(this.#host.patientNow());
    this.#attempts.onFrame(channel.link, frame, this.#touched);
  }

  /** A repeated report counts only for an attempt that this agent made. Otherwise a peer could add usage at will. */
  #onReport(report: ReportFrame, outbound: OutboundAttempt | undefined): void {
    const { name } = report;
    const receipt = name && this.#recent.receiptOf(name);
    if (name === undefined) this.#attempts.settle(report, outbound);
    else if (receipt === undefined) this.#attempts.refuse(report);
    else this.#attempts.settle({ ...report, name: { ...name, receipt } }, outbound);
  }

  onMessageEnd(_channel: RequestChannel): void {
    for (const outbound of this.#touched) outbound.onMessageEnd();
    this.#touched.clear();
  }

  #onOver(failure: AttemptFailure | undefined): void {
    if (failure !== 'not_accepted' || this.#active === undefined) return;
    this.#host.onSilent(this.session);
    this.#host.channels.stalled?.(this.session);
  }

  tick(now: number): void {
    this.#listen(now);
    this.#attempts.tick(now);
    if (this.#redialAt !== undefined && now >= this.#redialAt && this.#active === undefined) {
      if (this.#attempts.size > 0) this.#dial();
      else this.#redialAt = undefined;
    }
  }

  /** Probes a peer that was silent. */
  #listen(now: number): void {
    const active = this.#active;
    if (active === undefined || this.#attempts.size === 0) return this.#watchdog.onReceived(now);
    switch (this.#watchdog.look(now)) {
      case 'wait':
        return;
      case 'ask':
        return active.link.put({ ...LIVENESS_CLAIM, stream: this.#host.nextStream(active.dialled) });
      case 'gone':
        if (this.#host.channels.stalled?.(this.session) === true) return;
        for (const outbound of this.#attempts.values()) outbound.disconnect(0);
    }
  }

  /** Returns usage to store now. Call `forget` with its streams after it is stored. */
  settle(now: number, last = false): { records: UsageRecord[]; streams: number[] } {
    return this.#attempts.settlement.take(now, last);
  }

  /** Call while no request of either end is open. Returns how many bytes of credit the channels had lost. */
  reclaim(): number {
    let lost = 0;
    for (const { link } of this.#channels) lost += link.reclaim();
    return lost;
  }

  /**
   * Acknowledges the reports of these streams. Without a channel nothing is sent: the peer repeats its reports on the
   * next channel, and a repeated report is not stored again.
   */
  forget(streams: number[]): void {
    if (streams.length > 0) this.#active?.link.put({ type: 'settled', streams });
  }

  /** Ends all attempts. Usage without a report is settled by estimate. */
  close(): void {
    for (const outbound of [...this.#attempts.values()]) outbound.cancel();
  }
}

function isRefused(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof Error && 'code' in cause && cause.code === 'ECONNREFUSED';
}

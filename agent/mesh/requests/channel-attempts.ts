import type { PeerEvidence } from '../../../shared/routing/hang/hang-detector.ts';
import type { EngineLoad } from '../../../shared/routing/load.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import { AbandonedAttempts, LOCAL_ABANDONMENTS } from '../../../shared/upstream/abandoned-attempts.ts';
import { newAcceptTimeout } from '../../../shared/upstream/accept-timeout.ts';
import type { AttemptBody, AttemptFailure, AttemptRequest } from '../../../shared/upstream/attempt.ts';
import { HangWatch, SUSPECTED_REASON } from '../../../shared/upstream/hang-watch.ts';
import { OutboundAttempt, type OutboundAttemptHost } from '../../../shared/upstream/outbound-attempt.ts';
import { parkStalledResponses } from '../../../shared/upstream/park-stalled.ts';
import { Watchdog } from '../../../shared/upstream/watchdog.ts';
import { UsageSettlement } from '../../../shared/usage/settlement.ts';
import { StrayFrames } from '../../../shared/usage/stray-frames.ts';
import type { UsageRecord } from '../../../shared/usage/usage-record.ts';
import type { ReportName } from '../../../shared/wire/frames.ts';
import { AttemptReader } from './attempt-reader.ts';
import { LIVENESS_CLAIM, PEER_QUIET_MS } from './liveness-claim.ts';
import { RecentRequests } from './recent-requests.ts';
import type { ChannelSource, RequestChannel, StreamFrame } from './types.ts';

/** After a lost channel an honest peer sends a few stray frames for each of its streams. */
const UNKNOWN_MAX = 10_000;

/** A lost channel is dialed again immediately, then after this long. */
const REDIAL_MS = 400;

/** If this end dialed the channel and this many redials fail, the peer is gone, and with it its responses. */
const REDIALS_MAX = 3;

export interface ChannelAttemptsHost {
  readonly channels: ChannelSource;
  now(): number;
  /** Clock for deadlines; see `WaitClock`. */
  patientNow(): number;
  /** Never repeats within this process; odd if this end dialed. */
  nextStream(dialled: boolean): number;
  /** The session has a channel and did not acknowledge an opening. */
  onSilent(session: string): void;
  /** The load of the session's engine. */
  onLoad(session: string, load: EngineLoad): void;
  /** The engine does not answer requests: the host must call `judge` with the evidence of other nodes of the model. */
  compare(peer: ChannelAttempts): void;
  /** The engine is judged to hang and gets no requests for `pauseMs`; undefined: it answers again. */
  onHang(session: string, pauseMs: number | undefined): void;
}

/** All requests to one session: attempts, the channel that carries them, and the usage that the session reports. */
export class ChannelAttempts implements OutboundAttemptHost {
  readonly session: string;
  readonly #host: ChannelAttemptsHost;
  readonly #settlement: UsageSettlement;
  readonly #attempts = new Map<OutboundAttempt, AttemptReader>();
  readonly #abandoned = new AbandonedAttempts();
  readonly #streams = new Map<number, OutboundAttempt>();
  readonly #touched = new Set<OutboundAttempt>();
  readonly #recent = new RecentRequests();
  /** Open channels to the session; the first carries the streams. */
  readonly #channels = new Set<RequestChannel>();
  #active: RequestChannel | undefined;
  #dialling = false;
  #redialAt: number | undefined;
  #redials = 0;
  readonly #stray: StrayFrames;
  readonly #watchdog = new Watchdog(PEER_QUIET_MS, PEER_QUIET_MS);
  readonly #hangs: HangWatch;
  readonly accepts = newAcceptTimeout();

  constructor(session: string, host: ChannelAttemptsHost) {
    this.session = session;
    this.#host = host;
    this.#settlement = new UsageSettlement(session);
    this.#stray = new StrayFrames(this.#settlement, this.#abandoned, UNKNOWN_MAX);
    this.#hangs = new HangWatch({
      now: () => this.patientNow(),
      compare: () => host.compare(this),
      onSuspicion: (suspicion) => host.onHang(session, suspicion && suspicion.until - this.patientNow()),
    });
  }

  /** True if no attempt is open, nothing is left to settle, and there is no channel. */
  get idle(): boolean {
    return !this.busy && this.#channels.size === 0 && !this.#dialling;
  }

  /** Running attempts. */
  get open(): number {
    return this.#attempts.size;
  }

  /** True if an attempt is open, or usage is not settled. */
  get busy(): boolean {
    return this.#attempts.size > 0 || !this.#settlement.idle;
  }

  now(): number {
    return this.#host.now();
  }

  patientNow(): number {
    return this.#host.patientNow();
  }

  ask(request: AttemptRequest, body: AttemptBody): AttemptReader {
    if (this.#attempts.size === 0) this.#watchdog.heard(this.patientNow());
    const upstream = new OutboundAttempt(this.#host.nextStream(this.#active?.dialled ?? true), request, body, this);
    const attempt = new AttemptReader(upstream);
    this.#recent.add(request);
    this.#attempts.set(upstream, attempt);
    this.#streams.set(upstream.stream, upstream);
    if (!this.#hangs.admits(request)) {
      upstream.fail('suspected', SUSPECTED_REASON);
      return attempt;
    }
    this.#hangs.opened(upstream);
    if (this.#active !== undefined) upstream.connect(this.#active.link);
    else this.#dial();
    return attempt;
  }

  /** True if both were asked for the same model. */
  isLike(other: ChannelAttempts): boolean {
    return this.#recent.isLike(other.#recent);
  }

  asPeer(): PeerEvidence {
    return this.#hangs.asPeer();
  }

  judge(peers: readonly PeerEvidence[]): void {
    this.#hangs.judge(peers, this.#attempts.keys());
  }

  onFirstByte(upstream: OutboundAttempt): void {
    this.#hangs.onFirstByte(upstream);
  }

  #dial(): void {
    if (this.#dialling) return;
    this.#dialling = true;
    this.#redialAt = undefined;
    this.#host.channels.channelTo(this.session).then(
      (channel) => {
        this.#dialling = false;
        // The mesh has already reported the channel, or reported its end immediately after.
        if (channel.closed) this.#onDialFailed('the channel was lost at once');
        else this.onChannel(channel);
      },
      (error: unknown) => {
        this.#dialling = false;
        this.#onDialFailed(errorText(error), isRefused(error));
      },
    );
  }

  /** `gone`: the peer no longer listens; a session that ended never returns. */
  #onDialFailed(reason: string, gone = false): void {
    if (this.#active !== undefined) return; // the peer dialed this end meanwhile
    const hopeless = ++this.#redials >= REDIALS_MAX || gone;
    for (const upstream of [...this.#attempts.keys()]) {
      if (!upstream.accepted) upstream.fail('unreachable', reason);
      else if (hopeless) upstream.disconnect(0);
    }
    if (this.#attempts.size > 0 && !hopeless) this.#redialAt = this.patientNow() + REDIAL_MS;
  }

  onChannel(channel: RequestChannel): void {
    if (channel.closed) return;
    this.#channels.add(channel);
    if (this.#active === undefined) this.#activate(channel);
  }

  #activate(channel: RequestChannel): void {
    this.#active = channel;
    this.#watchdog.heard(this.patientNow());
    this.#redials = 0;
    this.#redialAt = undefined;
    this.#stray.connect();
    this.#streams.clear();
    this.#abandoned.tell(
      channel.link,
      () => this.#host.nextStream(channel.dialled),
      (from, to) => this.#settlement.moved(from, to),
    );
    for (const upstream of [...this.#attempts.keys()]) {
      // A stream number from the previous channel may belong to the peer's half of the numbers on this one.
      this.#settlement.renumbered(upstream.stream);
      upstream.stream = this.#host.nextStream(channel.dialled);
      this.#streams.set(upstream.stream, upstream);
      upstream.connect(channel.link);
    }
  }

  onChannelClosed(channel: RequestChannel): void {
    this.#channels.delete(channel);
    if (this.#active !== channel) return;
    this.#active = undefined;
    for (const upstream of this.#attempts.keys()) upstream.disconnect();
    const [next] = this.#channels;
    if (next !== undefined) return this.#activate(next);
    // A peer that dialed us may be at a place that we cannot dial. It either dials again or misses the deadline.
    this.#redials = channel.dialled ? 0 : Number.NEGATIVE_INFINITY;
    if (this.#attempts.size > 0) this.#dial();
  }

  onFrame(channel: RequestChannel, frame: StreamFrame): void {
    if (frame.type === 'settled') return;
    if (frame.type === 'load') return this.#host.onLoad(this.session, frame);
    if (channel === this.#active) this.#watchdog.heard(this.patientNow());
    const upstream = channel === this.#active ? this.#streams.get(frame.stream) : undefined;
    if (frame.type === 'report') return this.#report(frame, upstream);
    if (upstream !== undefined) {
      this.#touched.add(upstream);
      return upstream.onFrame(frame);
    }
    this.#stray.receive(channel.link, frame, this.now());
  }

  #report(frame: Extract<StreamFrame, { type: 'report' }>, upstream: OutboundAttempt | undefined): void {
    this.#abandoned.confirmed(frame.stream, frame.usage.complete, frame.name);
    if (frame.name !== undefined) this.#named(frame, frame.name, upstream);
    else this.#settlement.report(frame.stream, frame.usage, upstream, this.now());
  }

  /** Accepts only reports on attempts that we made; otherwise a peer could add usage at will. */
  #named({ stream, usage }: Extract<StreamFrame, { type: 'report' }>, said: ReportName, open?: OutboundAttempt): void {
    const receipt = this.#recent.receiptOf(said);
    if (receipt !== undefined) this.#settlement.named({ stream, usage, name: { ...said, receipt } }, open, this.now());
    else this.#active?.link.put({ type: 'settled', streams: [stream] });
  }

  onMessageEnd(_channel: RequestChannel): void {
    for (const upstream of this.#touched) upstream.onMessageEnd();
    this.#touched.clear();
  }

  onOver(upstream: OutboundAttempt, failure: AttemptFailure | undefined): void {
    this.#hangs.onOver(upstream, failure);
    this.#attempts.get(upstream)?.over(failure);
    this.#attempts.delete(upstream);
    this.#streams.delete(upstream.stream);
    this.#settlement.ended(upstream, failure, this.now());
    this.#abandoned.ended(upstream, failure);
    if (failure === 'not_accepted' && this.#active !== undefined) {
      this.#host.onSilent(this.session);
      this.#host.channels.stalled?.(this.session);
    }
    if (failure !== undefined && LOCAL_ABANDONMENTS.has(failure)) {
      this.#active?.link.put({ type: 'reset', stream: upstream.stream, code: 'cancelled', message: '' });
    }
  }

  renumber(upstream: OutboundAttempt): number {
    this.#streams.delete(upstream.stream);
    this.#settlement.renumbered(upstream.stream);
    const stream = this.#host.nextStream(this.#active?.dialled ?? true);
    this.#streams.set(stream, upstream);
    return stream;
  }

  tick(now: number): void {
    parkStalledResponses(this.#active?.link, this.#attempts.keys(), now);
    this.#listen(now);
    for (const upstream of [...this.#attempts.keys()]) upstream.tick(now);
    this.#hangs.tick(this.#attempts.keys(), this.#active !== undefined);
    if (this.#redialAt !== undefined && now >= this.#redialAt && this.#active === undefined) {
      if (this.#attempts.size > 0) this.#dial();
      else this.#redialAt = undefined;
    }
  }

  /** Checks whether the peer still answers. */
  #listen(now: number): void {
    const active = this.#active;
    if (active === undefined || this.#attempts.size === 0) return this.#watchdog.heard(now);
    switch (this.#watchdog.look(now)) {
      case 'wait':
        return;
      case 'ask':
        return active.link.put({ ...LIVENESS_CLAIM, stream: this.#host.nextStream(active.dialled) });
      case 'gone':
        if (this.#host.channels.stalled?.(this.session) === true) return;
        for (const upstream of this.#attempts.keys()) upstream.disconnect(0);
    }
  }

  /** Usage to store now; call `forget` with its streams after it is stored. */
  settle(now: number, last = false): { records: UsageRecord[]; streams: number[] } {
    return this.#settlement.take(now, last);
  }

  /** Without a channel the peer repeats its reports on the next one, and they are stored once. */
  forget(streams: number[]): void {
    if (streams.length > 0) this.#active?.link.put({ type: 'settled', streams });
  }

  /** Ends all attempts; unsettled usage is settled by estimate. */
  close(): void {
    for (const upstream of [...this.#attempts.keys()]) upstream.cancel();
  }
}

function isRefused(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof Error && 'code' in cause && cause.code === 'ECONNREFUSED';
}

import {
  type AttemptBody,
  type AttemptFailure,
  type AttemptRequest,
  attemptName,
  type ResultOf,
} from '../../shared/attempts/attempt-request.ts';
import { SUSPECTED_REASON } from '../../shared/attempts/hang-watch.ts';
import type { OutboundAttempt } from '../../shared/attempts/outbound-attempt.ts';
import { isEventStream, NO_BODY } from '../../shared/attempts/started-response.ts';
import { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import type { PeerEvidence } from '../../shared/routing/hang/hang-detector.ts';
import type { HangSuspicion } from '../../shared/routing/hang/hang-suspicion.ts';
import type { NodeLoad } from '../../shared/routing/node-load.ts';
import { type ReportFrame, SessionAttempts } from '../../shared/sessions/session-attempts.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { GpuShare } from '../../shared/usage/gpu-share.ts';
import type { ReportAnomaly, UsageRecord } from '../../shared/usage/usage-record.ts';
import { isNamed, UsageSettlement } from '../../shared/usage/usage-settlement.ts';
import type { Frame, ReportName } from '../../shared/wire/frames.ts';
import type { Link } from '../../shared/wire/link.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { waitClock } from '../platform/wait-clock.ts';
import { BrokenResponses } from './broken-responses.ts';
import { type CallResult, encodeResponse, FAILURE_ONLY_OFFSET } from './call/call-encoding.ts';
import type { LocalCallResult } from './call/local-calls.ts';
import { type AttemptName, PendingCalls } from './call/pending-calls.ts';
import { CompletionCounter } from './completion-counter.ts';
import type { ForgottenAttemptReports } from './forgotten-attempt-reports.ts';
import type { ResponseOffload } from './offload/response-offload.ts';
import { RecentErrors } from './recent-errors.ts';
import type { StreamIds } from './stream-ids.ts';

/** Request bodies up to this size are read whole, which is one read and not a stream. */
const WHOLE_BODY_BYTES = 1024 * 1024;

/**
 * Maximum frames of unknown streams from one socket. After an object was lost, an honest agent sends a few for each of
 * its streams.
 */
const UNKNOWN_MAX = 50_000;

/** Failures that this side detected and that the agent does not know, so that a reset is sent. */
const RESET_AT_AGENT: ReadonlySet<AttemptFailure> = new Set<AttemptFailure>([
  'cancelled',
  'not_accepted',
  'failed',
  'hung',
]);

const KILLED = 'its agent was killed';

const SUSPECTED: ResultOf<'failure'> = { kind: 'failure', code: 'suspected', message: SUSPECTED_REASON };

interface TunnelAttemptsEvents {
  /** Called when an attempt is open or a record must be stored; `tick` must then be called regularly. */
  busy(): void;
  /** Called if the agent did not acknowledge an opening. */
  suspect(): void;
  /** Returns the load of its engine that the agent last reported. */
  load(): NodeLoad | undefined;
  /** Called if the engine completed an attempt after its request was also sent to another node. */
  double(): void;
  /**
   * Called if the engine answers no request. Call `judge` with what other nodes of its models observe of their engines.
   */
  compare(): void;
  /** Called if the engine is suspected to hang. Undefined: the engine answers again. */
  onSuspicion(suspicion: HangSuspicion | undefined): void;
}

/**
 * All attempts of one tunnel. Workers request them with `fetch`, `call` or `callLocally`. The active socket carries
 * them.
 */
export class TunnelAttempts {
  readonly errors = new RecentErrors();
  readonly completions = new CompletionCounter();
  readonly #attempts: SessionAttempts;
  readonly #calls = new PendingCalls();
  /** For each attempt that a Worker fetches: the client's disconnection, which cancels the attempt. */
  readonly #callers = new WeakMap<OutboundAttempt, ClientDisconnect>();
  readonly #broken = new BrokenResponses();
  readonly #on: TunnelAttemptsEvents;
  readonly #offload: ResponseOffload | undefined;
  readonly #gpu = new GpuShare();
  readonly #proofs: ForgottenAttemptReports;
  /** True if the session's agent was killed, so that it has no socket. */
  #isOver = false;

  constructor(
    session: string,
    ids: StreamIds,
    offload: ResponseOffload | undefined,
    proofs: ForgottenAttemptReports,
    on: TunnelAttemptsEvents,
    suspicion?: HangSuspicion,
  ) {
    this.#offload = offload;
    this.#on = on;
    this.#proofs = proofs;
    const host = {
      now: steadyNow,
      patientNow: () => waitClock.now(),
      nextStream: () => ids.next(),
      unknownMax: UNKNOWN_MAX,
      resets: RESET_AT_AGENT,
      load: on.load,
      onReport: (report: ReportFrame, attempt: OutboundAttempt | undefined) => this.#onReport(report, attempt),
      onOver: (attempt: OutboundAttempt, failure: AttemptFailure | undefined) => this.#onOver(attempt, failure),
      compare: on.compare,
      onSuspicion: on.onSuspicion,
    };
    this.#attempts = new SessionAttempts(new UsageSettlement(session, proofs, Date.now), host, suspicion);
  }

  /** True if no attempt is open and no usage must be stored. */
  get idle(): boolean {
    return this.#attempts.idle;
  }

  get open(): number {
    return this.#attempts.size;
  }

  /** Number of records that wait and may be stored immediately. */
  get due(): number {
    return this.#attempts.settlement.due;
  }

  /** Opens an attempt for a Worker's `fetch`: a disconnection is noticed, and the body may stream. */
  async fetch(open: AttemptRequest, request: Request): Promise<Response> {
    const length = Number(request.headers.get('content-length') ?? Number.NaN);
    const whole = length <= WHOLE_BODY_BYTES ? new Uint8Array(await request.arrayBuffer()) : undefined;
    if (request.signal.aborted) {
      this.leave(open); // The attempt arrived as a call first, and its client has disconnected.
      return encodeResponse({ kind: 'failure', code: 'cancelled', message: '' });
    }
    const held = open.resume ? this.#offload?.takeBack(attemptName(open)) : undefined;
    if (held !== undefined) {
      this.#cancelOnDisconnect(held.attempt, request);
      return encodeResponse(held.answer);
    }
    const broken = this.#broken.of(open);
    if (open.answerOffset === FAILURE_ONLY_OFFSET || (open.resume && broken?.length === open.answerOffset))
      return encodeResponse({ kind: 'failure', code: broken?.code ?? 'lost', message: 'the response broke off' });
    const called = this.#calls.take(open);
    if (called === undefined && !this.#admits(open)) return encodeResponse(SUSPECTED);
    return new Promise((resolve) => {
      const attempt = called ?? this.#create(open, whole ?? request.body);
      this.#cancelOnDisconnect(attempt, request);
      attempt.attachCaller((result) => {
        if (!open.offload || this.#offload === undefined || result.kind !== 'stream' || !mayOffload(result))
          return resolve(encodeResponse(result));
        this.#offload.offer({ attempt, answer: result }, (offered) => {
          if (offered.kind === 'offloaded') this.#detachCaller(attempt); // the Worker calls `leave` if needed
          resolve(encodeResponse(offered));
        });
      });
      if (called !== undefined) this.#attempts.reconnect(called);
    });
  }

  #cancelOnDisconnect(attempt: OutboundAttempt, request: Request): void {
    const client = new ClientDisconnect(request.signal);
    client.on(() => attempt.cancel());
    this.#callers.set(attempt, client);
  }

  #detachCaller(attempt: OutboundAttempt): void {
    this.#callers.get(attempt)?.over();
    this.#callers.delete(attempt);
  }

  /**
   * Opens an attempt for a Worker's call with a small request. `answer` gets the response if it is complete soon. A
   * Worker calls `leave` when its client disconnects, but a Worker that was ended cannot. So a longer response must be
   * fetched, and is canceled if no Worker fetches it.
   */
  call(open: AttemptRequest, body: Uint8Array, answer: (result: CallResult) => void): void {
    if (this.#admits(open)) this.#calls.add(this.#create(open, body), answer);
    else answer(SUSPECTED);
  }

  /**
   * Like `call`, for a caller in this process. If a stream may be offloaded, only its first data must arrive soon, not
   * the whole response.
   */
  callLocally(open: AttemptRequest, body: Uint8Array, onResult: (result: LocalCallResult) => void): void {
    if (open.offload !== true || !this.#admits(open)) return this.call(open, body, onResult);
    const attempt = this.#create(open, body);
    this.#calls.add(attempt, onResult, (answer) => {
      if (this.#offload === undefined || !mayOffload(answer)) return false;
      this.#calls.take(open);
      this.#offload.offer({ attempt, answer }, onResult);
      return true;
    });
  }

  /**
   * True if the attempt arrived as a call and is neither answered nor fetched, or if its response is being offloaded.
   */
  holds(name: AttemptName): boolean {
    return this.#calls.has(name) || this.#offload?.holds(attemptName(name)) === true;
  }

  leave(name: AttemptName): void {
    this.#calls.cancel(name);
    this.#offload?.leave(attemptName(name));
  }

  /** True if the attempt may be opened. A claimed attempt was already admitted. */
  #admits(open: AttemptRequest): boolean {
    return open.resume || this.#attempts.admits(open);
  }

  #create(open: AttemptRequest, body: AttemptBody): OutboundAttempt {
    this.#on.busy();
    const attempt = this.#attempts.open(open, body);
    if (open.gpus !== undefined) attempt.gpuShare = this.#gpu.begin(open.gpus, steadyNow());
    // The failure is deferred until the caller waits for the result.
    if (this.#isOver) neverRejects(Promise.resolve().then(() => attempt.fail('gone', KILLED)));
    return attempt;
  }

  #onOver(attempt: OutboundAttempt, failure: AttemptFailure | undefined): void {
    this.#calls.over(attempt.request, failure === 'cancelled');
    this.#detachCaller(attempt);
    attempt.gpuShare?.end(steadyNow());
    this.errors.ended(attempt, failure, Date.now());
    if (failure !== undefined && failure !== 'cancelled' && attempt.delivered) this.#broken.add(attempt, failure);
    if (failure === 'not_accepted') this.#on.suspect();
  }

  connect(link: Link): void {
    this.#isOver = false;
    this.#attempts.connect(link);
  }

  disconnect(): void {
    this.#proofs.forget();
    this.#attempts.disconnect();
  }

  /**
   * Fails all attempts, because the agent does not return for them. Later attempts fail too: a Worker's view may be a
   * second old and still contain the node.
   */
  abandon(): void {
    this.#isOver = true;
    for (const attempt of [...this.#attempts.values()]) attempt.breakOff('gone', KILLED);
  }

  /** Handles a frame of a stream. `touched` collects the attempts that have work to do at the end of the message. */
  onFrame(link: Link, frame: Extract<Frame, { stream: number }>, touched: Set<OutboundAttempt>): void {
    this.#attempts.onFrame(link, frame, touched);
  }

  #onReport(report: ReportFrame, attempt: OutboundAttempt | undefined): void {
    const { settlement } = this.#attempts;
    if (report.name !== undefined && !this.#proofs.ready && !settlement.knows(report.name, attempt))
      return this.#proofs.postpone(report, (again) => this.#onReport(again, this.#attempts.get(again.stream)));
    // A report that the agent repeats after a lost socket does not count as another completion.
    if (attempt !== undefined || settlement.awaits(report.stream)) this.completions.add();
    if (this.#attempts.settle(report, attempt)) this.#on.double();
    this.#on.busy();
  }

  /** Returns the attempt of this name if it has not ended. */
  running(name: ReportName): OutboundAttempt | undefined {
    for (const attempt of this.#attempts.values()) if (isNamed(attempt, name)) return attempt;
    return undefined;
  }

  /** Returns the anomalies of reports since the last call. */
  takeAnomalies(): readonly ReportAnomaly[] {
    return this.#attempts.settlement.takeAnomalies();
  }

  tick(now: number): void {
    this.#calls.tick(now);
    this.#attempts.tick(now);
  }

  /** Decides whether this node's engine hangs, by what other nodes of the same models observe of their engines. */
  judge(peers: readonly PeerEvidence[]): void {
    this.#attempts.judge(peers);
  }

  /** Returns what this node observes of its engine, for the decision whether another node's engine hangs. */
  firstBytes(): PeerEvidence {
    return this.#attempts.asPeer();
  }

  /** Returns the records to store now, and the streams that the agent may forget after they are stored. */
  takeUsage(now: number): { records: UsageRecord[]; streams: number[] } {
    return this.#attempts.settlement.take(now);
  }
}

/** True if the response may be offloaded: a successful event stream. */
function mayOffload({ status, head }: ResultOf<'stream'>): boolean {
  return status >= 200 && status < 300 && !NO_BODY.has(status) && isEventStream(head);
}

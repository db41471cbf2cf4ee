import type { NodeLoad } from '../routing/node-load.ts';
import type { AdaptiveTimeout } from '../timing/adaptive-timeout.ts';
import type { Frame } from '../wire/frames.ts';
import { InboundStream } from '../wire/inbound-stream.ts';
import type { Link } from '../wire/link.ts';
import { RESUME_WINDOW_MS } from '../wire/protocol-constants.ts';
import { WireError } from '../wire/wire-error.ts';
import { AttemptDeadlines } from './attempt-deadlines.ts';
import type { AttemptBody, AttemptFailure, AttemptRequest, ResultOf } from './attempt-request.ts';
import { AttemptResultListener } from './attempt-result-listener.ts';
import { countSseEvents } from './count-sse-events.ts';
import { buildOpenFrame } from './open-frame.ts';
import { RequestUpload } from './request-upload.ts';
import { ResponseBody } from './response-body.ts';

/** Services that an attempt needs from its owner. */
export interface OutboundAttemptHost {
  /** Milliseconds of a monotonic clock. */
  now(): number;
  /** Milliseconds for deadlines, from `WaitClock`. */
  patientNow(): number;
  /** Time limit for the node to acknowledge an opening. The request's `acceptMs` applies instead if it is longer. */
  readonly accepts: AdaptiveTimeout;
  /** The attempt ended for the caller. Without `failure`, the whole answer was passed on. */
  onOver(outbound: OutboundAttempt, failure: AttemptFailure | undefined): void;
  /** The first byte of the answer's body arrived. */
  onFirstByte(outbound: OutboundAttempt): void;
  /** The node's last report about its engine, if the owner receives it. */
  load?(): NodeLoad | undefined;
  /** Returns a new stream number for the attempt. */
  renumber(outbound: OutboundAttempt): number;
}

/**
 * One attempt of a request on the calling side (a gateway's object or an agent's ingress): opens the stream, sends the
 * body and passes the answer on. It survives the loss of its socket, because both directions continue at their offsets
 * on the next socket. It does not survive the loss of its object: then the Worker claims the stream from a new object.
 *
 *     opening → accepted → answering → over
 */
export class OutboundAttempt {
  /** Changes when a parked attempt continues, so that late data under the old number is not mistaken for new data. */
  stream: number;
  readonly request: AttemptRequest;
  readonly openedAt: number;
  readonly answer: ResponseBody;
  readonly #host: OutboundAttemptHost;
  readonly #upload: RequestUpload;
  readonly #incoming: InboundStream;
  /** The caller that waits for the result. */
  readonly listener = new AttemptResultListener();
  #link: Link | undefined;
  /** Number of OPEN frames sent. After the second and later ones, the body waits until the agent reports its length. */
  #opensSent = 0;
  readonly #deadlines: AttemptDeadlines;
  /** When the first OPEN frame was sent. */
  #sentAt = 0;
  #acceptedAt: number | undefined;
  #head: Extract<Frame, { type: 'head' }> | undefined;
  #headAt = 0;
  #finished = false;
  #failure: AttemptFailure | undefined;
  /** The reason for a break, if the reader must first get the data that arrived before the break. */
  #failing: AttemptFailure | undefined;
  #parked = false;
  /** True if parts of the answer were requested more than once, so that the agent's report may arrive twice. */
  repeated: boolean;
  /** The request's share of the node's GPU time, if the owner counts it. */
  gpuShare: { at(now: number): number; end(now: number): void } | undefined;
  /** Number of events received, for an estimate if no report arrives. */
  events = 0;
  answerBytes = 0;
  /** Milliseconds from the opening to the first data; 0 before the first data. */
  firstMs = 0;

  constructor(stream: number, request: AttemptRequest, body: AttemptBody, host: OutboundAttemptHost) {
    this.stream = stream;
    this.request = request;
    this.#host = host;
    this.openedAt = host.now();
    this.#deadlines = new AttemptDeadlines(host.patientNow(), Math.max(request.acceptMs, host.accepts.ms));
    this.repeated = request.resume;
    this.#incoming = new InboundStream({ offset: request.answerOffset });
    this.#upload = new RequestUpload(body, request.bodyLength, () => this.cancel());
    this.answer = new ResponseBody(
      (bytes) => this.#onPulled(bytes),
      (cancelled) => (cancelled ? this.cancel() : this.#finish(this.#failing)),
      () => this.#resumeParked(),
    );
  }

  get over(): boolean {
    return this.#finished;
  }

  /** The reason for an early end. Undefined while the attempt is open, or if its whole answer was passed on. */
  get failure(): AttemptFailure | undefined {
    return this.#failure;
  }

  /** Number of answer bytes received, including those that an earlier reader took. */
  get answerLength(): number {
    return this.#incoming.received;
  }

  /** The engine's status; 0 before the response head. */
  get status(): number {
    return this.#head?.status ?? 0;
  }

  /** True if a byte of the answer's body has arrived, here or at an earlier reader. */
  get begun(): boolean {
    return this.#incoming.received > 0;
  }

  /** True if the agent is connected and has the whole request, and no byte of the answer's body has arrived. */
  get awaitsFirstByte(): boolean {
    return this.#agentOwesData && !this.begun && !this.#finished;
  }

  /** Milliseconds that the agent has been silent although it owes data; 0 if it owes none. */
  silentMs(now: number): number {
    return this.#agentOwesData && !this.#finished ? this.#deadlines.silentMs(now) : 0;
  }

  /** Length of the request's body, as far as it is known. */
  get bodyBytes(): number {
    return this.#upload.length ?? 0;
  }

  /** True if the whole answer has arrived. */
  get complete(): boolean {
    return this.#incoming.complete;
  }

  /**
   * True if the caller has the result. Data that arrives now is the rest of the answer, or there is a reason for its
   * absence.
   */
  get delivered(): boolean {
    return this.listener.delivered;
  }

  /** True if an OPEN frame was sent. */
  get opened(): boolean {
    return this.#opensSent > 0;
  }

  get accepted(): boolean {
    return this.#acceptedAt !== undefined;
  }

  /** `onResult` receives the result. From now on a disconnect of the caller is noticed. */
  attachCaller(onResult: (result: ResultOf<'whole' | 'stream' | 'failure'>) => void): void {
    this.listener.attachCaller(onResult);
    this.#reportResult();
  }

  get connected(): boolean {
    return this.#link !== undefined;
  }

  /** True if the agent owes no more data; any data that is left waits for its reader. */
  get #agentDone(): boolean {
    return (this.#incoming.complete && this.#head !== undefined) || this.#failing !== undefined;
  }

  /** Call when a socket is available. Opens the attempt on it, or continues where the last socket broke. */
  connect(link: Link): void {
    if (this.#agentDone) return;
    if (this.#deadlines.opened(this.#incoming.received, this.#host.now())) {
      return this.fail('failed', 'the response broke several sockets');
    }
    this.#link = link;
    if (this.#opensSent > 0) this.#incoming.resume();
    const { request, stream } = this;
    const resume = request.resume || this.accepted;
    link.put(
      buildOpenFrame(request, { stream, resume, from: this.#incoming.received, bodyLength: this.#upload.length }),
    );
    if (++this.#opensSent === 1) this.#sentAt = this.#host.patientNow();
    if (this.#sendsAlong) this.#upload.attach(link, this.stream);
  }

  get #sendsAlong(): boolean {
    return this.#opensSent === 1 && !this.request.resume;
  }

  /**
   * Call when the socket was lost. The agent keeps the stream for `resumeMs`, and this side waits that long for another
   * socket.
   */
  disconnect(resumeMs = RESUME_WINDOW_MS): void {
    // Returns the credit of this stream to the socket, because the socket of a silent peer may survive, and later
    // streams share its credit.
    this.#link?.consumed(this.#incoming.disown());
    this.#shrink();
    this.#link = undefined;
    // `onMessageEnd` is not called for a message in which the agent violates the protocol. If that message brought the
    // answer's end, the result is reported here.
    if (this.#incoming.complete) this.#reportResult();
    if (this.accepted && !this.#agentDone) this.#deadlines.waitUntil(this.#host.patientNow() + resumeMs);
  }

  onFrame(frame: Frame): void {
    if (this.#finished || this.#failing !== undefined) return;
    this.#deadlines.onReceived(this.#host.patientNow());
    // A parked attempt discards its data. The agent sends the data again later, and END or RESET after it.
    if (this.#parked && (frame.type === 'end' || frame.type === 'reset')) return;
    switch (frame.type) {
      case 'accept':
        return this.#onAccept(frame.bodyOffset, frame.bodyDone);
      case 'head':
        if (this.#head === undefined) this.#headAt = this.#host.now();
        this.#head ??= frame;
        return;
      case 'data':
        return this.#onData(frame.offset, frame.bytes);
      case 'end':
        if (this.#head === undefined) throw new WireError('bad_state', 'the node sent END before HEAD');
        this.#incoming.end(frame.offset);
        this.answer.end();
        return;
      case 'reset':
        if (this.#agentDone) return; // The agent has forgotten an answer that is complete here.
        return this.breakOff(frame.code, frame.message);
      default:
        return;
    }
  }

  #onAccept(bodyOffset: number, bodyDone: boolean): void {
    if (this.#acceptedAt === undefined && this.#opensSent === 1)
      this.#host.accepts.answered(this.#host.patientNow() - this.#sentAt);
    this.#acceptedAt ??= this.#host.now();
    this.#deadlines.waitNoMore();
    if (bodyDone) {
      this.#link?.detach(this.stream);
      return this.#upload.close();
    }
    if (this.#sendsAlong && bodyOffset === 0) return;
    if (!this.#upload.continueAt(bodyOffset, this.#opensSent === 1)) {
      this.fail('failed', 'the body cannot be continued');
      return;
    }
    if (this.#link !== undefined) this.#upload.attach(this.#link, this.stream);
  }

  /** True if the answer has started, but its reader has not taken bytes for STALLED_MS. */
  stalled(now: number): boolean {
    if (this.#finished || this.#parked || this.#failing !== undefined) return false;
    if (this.#head === undefined || this.answer.wantsData) return false;
    return this.#deadlines.hasStalled(now);
  }

  /**
   * Returns the socket credit that a stalled reader holds. The agent keeps the discarded bytes and sends them again
   * when the reader continues.
   */
  park(): void {
    this.#parked = true;
    this.repeated = true;
    this.answer.drop();
    this.#link?.consumed(this.#incoming.drop());
    this.#shrink();
  }

  #shrink(): void {
    if (this.#link !== undefined) this.#incoming.shrink(this.#link.pool);
  }

  #resumeParked(): void {
    if (!this.#parked) return;
    this.#parked = false;
    this.#link?.detach(this.stream); // The rest of the request is also sent under the new stream number.
    this.stream = this.#host.renumber(this);
    if (this.#link !== undefined) this.connect(this.#link);
  }

  #onData(offset: number, bytes: Uint8Array): void {
    if (this.#head === undefined) throw new WireError('bad_state', 'the node sent DATA before HEAD');
    if (this.#parked) return this.#link?.consumed(bytes.length);
    const fresh = this.#incoming.accept(offset, bytes);
    if (fresh.length < bytes.length) this.#link?.consumed(bytes.length - fresh.length);
    if (fresh.length === 0) return;
    const isFirst = this.answerBytes === 0;
    if (isFirst) this.firstMs = Math.max(1, this.#host.now() - this.openedAt);
    this.answerBytes += fresh.length;
    if (isFirst) this.#host.onFirstByte(this);
    if (this.request.streaming) this.events += countSseEvents(fresh);
    this.answer.push(fresh);
  }

  #onPulled(bytes: number): void {
    this.#deadlines.pulled(this.#host.patientNow());
    // Counted even without a socket, because the next socket's credit starts from this count.
    const own = this.#incoming.consume(bytes);
    this.#link?.consumed(own);
    const credit = this.#link && this.#incoming.credit(this.#link.pool);
    if (credit !== undefined) this.#link?.put({ type: 'credit', stream: this.stream, ...credit });
  }

  /** Call at the end of a message. Reports the head, with the whole answer if it came in the same message. */
  onMessageEnd(): void {
    this.#reportResult();
  }

  #reportResult(): void {
    const head = this.#head;
    if (head === undefined || this.delivered || this.#finished) return;
    this.listener.answered(() => this.#answerTo(head), this.answer, this.#incoming.buffered);
  }

  #answerTo({ status, headers, engineTenths }: Extract<Frame, { type: 'head' }>): ResultOf<'stream'> {
    const engineMs = engineTenths / 10;
    const load = this.#host.load?.();
    const head = { headers, forwardMs: this.#forwardMs(engineMs), engineMs, ...(load === undefined ? {} : { load }) };
    return { kind: 'stream', status, head, open: () => this.answer.open() };
  }

  /**
   * Milliseconds to the node and back. The acknowledgment may wait at the node for the head, and then contains the
   * engine's time. The head without the engine's time does not, except after a claim: the engine began before it.
   */
  #forwardMs(engineMs: number): number {
    const untilAccepted = (this.#acceptedAt ?? this.openedAt) - this.openedAt;
    if (this.request.resume) return untilAccepted;
    return Math.min(untilAccepted, Math.max(0, this.#headAt - this.openedAt - engineMs));
  }

  /**
   * Call periodically with the host's `patientNow`. Ends the attempt if the node did not acknowledge or resume it in
   * time, if no caller attached to it in time, or if the node has been silent for too long.
   */
  tick(now: number): void {
    if (this.#finished) return;
    if (this.listener.attachExpired(now)) return this.cancel();
    if (this.#isOverdue(now)) {
      this.#link?.put({ type: 'reset', stream: this.stream, code: 'cancelled', message: 'overdue' });
      const code = this.begun ? 'stall_timeout' : 'first_byte_timeout';
      return this.breakOff(code, 'the node sent nothing');
    }
    if (!this.#deadlines.isLate(now)) return;
    if (this.accepted) this.breakOff('lost', 'the stream was not resumed');
    else {
      this.#host.accepts.expired();
      this.fail('not_accepted', 'the node did not answer');
    }
  }

  /** True if the agent is connected, has the whole request, and has more to send. */
  get #agentOwesData(): boolean {
    return this.#link !== undefined && this.accepted && this.#upload.done && !this.#agentDone;
  }

  /** True if the agent owes data and has been silent for longer than the engine's time limit plus a grace period. */
  #isOverdue(now: number): boolean {
    if (!this.#agentOwesData || (this.#head !== undefined && !this.answer.wantsData)) this.#deadlines.onReceived(now);
    return this.#deadlines.isOver(this.begun ? this.request.stallMs : this.request.firstByteMs, now);
  }

  /** The node will send no more data. The reader gets the data that arrived before it gets the failure. */
  breakOff(code: AttemptFailure, message: string): void {
    if (this.#finished || this.#failing !== undefined) return;
    if (this.request.resume) this.#reportResult(); // A claim has a reader already, and the rest belongs to that reader.
    if (!this.delivered || !this.answer.breakOff(code)) return this.fail(code, message);
    this.#failing = code;
    this.#deadlines.waitNoMore();
  }

  fail(code: AttemptFailure, message: string): void {
    if (this.#finished) return;
    this.listener.failed(code, message);
    this.answer.fail(code);
    this.#finish(code);
  }

  /** Call when the client, or the Worker for it, no longer wants the answer. */
  cancel(): void {
    if (this.#finished) return;
    this.fail('cancelled', 'the client disconnected');
  }

  #finish(failure: AttemptFailure | undefined): void {
    if (this.#finished) return; // The attempt failed before this data was read.
    this.#finished = true;
    this.#failure = failure;
    this.#link?.detach(this.stream);
    this.#link?.consumed(this.#incoming.consume(this.#incoming.buffered));
    this.#shrink();
    this.#upload.close();
    this.#host.onOver(this, failure);
  }
}

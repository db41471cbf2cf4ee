import { attemptName } from '../../shared/attempts/attempt-request.ts';
import { withoutUsage } from '../../shared/openai/body-edits.ts';
import { type Endpoint, endpointById } from '../../shared/openai/endpoints.ts';
import type { Frame, OpenFrame } from '../../shared/wire/frames.ts';
import type { HeaderList } from '../../shared/wire/header-codec.ts';
import type { Link } from '../../shared/wire/link.ts';
import { OutboundStream } from '../../shared/wire/outbound-stream.ts';
import { RESUME_WINDOW_MS, STREAM_WINDOW_BYTES } from '../../shared/wire/protocol-constants.ts';
import type { ReportedTimings, ReportedUsage } from '../../shared/wire/reported-usage.ts';
import { PROMPT_MAX_BYTES } from '../engine/prefix-blocks.ts';
import type { SealOpener } from '../seal/seal-opener.ts';
import type { AttemptAccount } from './caller-account.ts';
import { EngineAnswer, type EngineAnswerEnd, failedOutcome, NORMAL_END } from './engine-answer.ts';
import type { EngineCall, EngineEvents } from './engine-call.ts';
import type { EngineClient } from './engine-client.ts';
import { EngineClock } from './engine-clock.ts';
import { EngineRequestBody } from './engine-request-body.ts';
import { relabelStream } from './mislabeled-stream.ts';
import { readableUsage } from './pending-reports.ts';
import { isSealed, type OpenedFacts, SealedCall } from './sealed-call.ts';
import { StreamOptionsRetry, type UsageOptions } from './stream-options-retry.ts';

/** Maximum length of a body that is sent again without our `stream_options`. A longer one is not. */
const RESEND_MAX_BYTES = 1024 * 1024;

/** The engine's response is not read further while this many bytes of it wait for credit. */
const UNSENT_MAX_BYTES = STREAM_WINDOW_BYTES;

export interface EngineAttemptHost {
  /** Absent if this agent does not open sealed requests. */
  readonly seals?: SealOpener | undefined;
  /** Number of acknowledged bytes that a new attempt keeps. */
  tail(): number;
  /** The highest frame type that the other end reads. */
  reads(): number;
  now(): number;
  /** Milliseconds of the clock for deadlines; see `WaitClock`. */
  patientNow(): number;
  /** What is known about the current engine's support of `stream_options`. */
  usageOptions(): UsageOptions['state'];
  /** Called when the engine answers, before its head is sent. */
  onHead(status: number): void;
  /** Called when a stream begins, `ms` after the engine got the request. */
  onFirstToken(ms: number): void;
  /** Called when the attempt is over. `usage` must be reported until the gateway has stored it. */
  onReport(attempt: EngineAttempt, usage: ReportedUsage, timings: ReportedTimings): void;
  /** Called when the engine has answered, and the gateway asked for the first blocks of the prompt. */
  onPrompt(attempt: EngineAttempt, body: Uint8Array): void;
  /** Called when the engine is done with the request, successfully or not. */
  onIdle(attempt: EngineAttempt): void;
}

/** Endpoints with prompts that an engine's `/tokenize` accepts. */
const PROMPTED: ReadonlySet<string> = new Set(['/v1/chat/completions', '/v1/completions']);

/**
 * One attempt of a request at this node: the body goes to the engine, the response to the tunnel. While its gateway is
 * connected, the attempt is bound to a stream of the gateway's link. If the link is lost, the attempt continues for
 * RESUME_WINDOW_MS, as far as its buffer suffices, so that a gateway can claim it on a new link.
 */
export class EngineAttempt {
  readonly name: string;
  readonly open: OpenFrame;
  readonly endpoint: Endpoint;
  readonly body: EngineRequestBody;
  /** Accounts for the attempt; undefined: nothing does. */
  account: AttemptAccount | undefined;
  #host: EngineAttemptHost;
  readonly #outgoing: OutboundStream;
  /** True while it is unknown whether the engine accepts the `stream_options` that the gateway adds. */
  readonly #mayRefuse: boolean;
  #stream: number;
  #link: Link | undefined;
  #call: EngineCall | undefined;
  #answer: EngineAnswer | undefined;
  /** Facts that are known after a sealed request was opened; undefined for an unsealed request. */
  #opened: OpenedFacts | undefined;
  #head: Extract<Frame, { type: 'head' }> | undefined;
  #ending: EngineAnswerEnd | undefined;
  #usage: ReportedUsage | undefined;
  /** True if the ending, or at least the usage, was sent on the link. */
  #reported = false;
  #paused = false;
  readonly #clock = new EngineClock();
  /** When the engine last took or sent a byte, or was allowed to send again after a pause. */
  #progressAt = 0;
  #unclaimedUntil: number | undefined;

  /** @throws RangeError if edits overlap */
  constructor(open: OpenFrame, endpoint: Endpoint, host: EngineAttemptHost) {
    this.open = open;
    this.name = attemptName(open);
    this.endpoint = endpoint;
    this.#host = host;
    this.#outgoing = new OutboundStream({ tail: host.tail() });
    this.#stream = open.stream;
    const plain = withoutUsage(open.edits);
    const options = plain.length < open.edits.length ? host.usageOptions() : 'taken';
    this.#mayRefuse = options === 'unknown';
    const edits = options === 'refused' ? plain : open.edits;
    this.body = new EngineRequestBody(edits, open.bodyLength, (bytes) => this.#onBodyTaken(bytes));
    if (this.#mayRefuse) this.body.keepRaw(RESEND_MAX_BYTES);
    if (endpoint.media === 'uploaded_audio' && !isSealed(open)) this.body.measureAudio(open.headers);
    if (open.prefixes === true && !isSealed(open) && PROMPTED.has(endpoint.path)) this.body.keep(PROMPT_MAX_BYTES);
  }

  static endpointOf(open: OpenFrame): Endpoint | undefined {
    return endpointById(open.endpoint);
  }

  get stream(): number {
    return this.#stream;
  }

  /** True if a link takes the attempt's frames. */
  get bound(): boolean {
    return this.#link !== undefined;
  }

  get finished(): boolean {
    return this.#ending !== undefined;
  }

  /**
   * True if the connection was lost before the first message was read completely. The engine has not received the
   * request.
   */
  get notStarted(): boolean {
    return this.#call === undefined && !this.finished;
  }

  /** True if the ending was sent, and only the acknowledgment of the usage is missing. */
  get endingSent(): boolean {
    return this.finished && this.#reported;
  }

  /** Number of bytes of the response in memory. */
  get kept(): number {
    return this.#outgoing.kept;
  }

  /**
   * Continues the response at `open.answerOffset` on a new stream of `link`. False if that part of the response is no
   * longer in memory.
   */
  claim(link: Link, open: OpenFrame): boolean {
    if (!this.#outgoing.rewind(open.answerOffset)) return false;
    this.#link?.detach(this.#stream);
    this.#shrink();
    this.#stream = open.stream;
    this.body.incoming.resume(link === this.#link);
    this.bind(link);
    return true;
  }

  /** From now on the attempt belongs to another gateway, which claims it. */
  moveTo(host: EngineAttemptHost): void {
    this.#host = host;
  }

  /** Binds the attempt, after its first OPEN or a claim: from now on frames go to `link`. */
  bind(link: Link): void {
    this.#link = link;
    this.#reported = false;
    this.#unclaimedUntil = undefined;
    const { received: bodyOffset, complete: bodyDone } = this.body.incoming;
    link.putLazily({ type: 'accept', stream: this.#stream, bodyOffset, bodyDone });
    if (this.#head !== undefined) link.put({ ...this.#head, stream: this.#stream });
    link.attach(this.#stream, {
      outgoing: this.#outgoing,
      ending: () => this.#endingFrames(),
      refill: () => this.#resume(),
    });
  }

  /** Call when the socket or the gateway's object is gone. The attempt waits to be claimed. */
  unbind(): void {
    this.#link?.detach(this.#stream);
    // The link may stay open. Its credit is shared by all streams, so return what this stream holds of it.
    this.#link?.consumed(this.body.incoming.disown());
    this.#shrink();
    this.#link = undefined;
    this.#unclaimedUntil = this.#host.patientNow() + RESUME_WINDOW_MS;
  }

  /** Starts the engine's work. Call after the first message was read: a small body is then complete. */
  start(client: EngineClient): void {
    if (this.#call !== undefined || this.finished) return;
    this.#clock.start(this.#host.now());
    this.#progressAt = this.#host.patientNow();
    const events: EngineEvents = {
      onHead: (status, headers, sized) => this.#onHead(status, headers, sized),
      onData: (chunk) => this.#onData(chunk),
      onEnd: () => this.#finish({ kind: 'end' }),
      onError: (code, message) => this.#finish({ kind: 'reset', code, message }),
    };
    this.#call = this.#ask(client, this.open.streaming ? relabelStream(events) : events);
  }

  #ask(client: EngineClient, events: EngineEvents): EngineCall {
    const { open, endpoint, body } = this;
    const { seals: opener } = this.#host;
    const length = body.contentLength;
    if (opener === undefined || !isSealed(open)) {
      if (!this.#mayRefuse) return client.call(open, endpoint, body.open(), length, events);
      const without = () => body.again(withoutUsage(open.edits));
      return new StreamOptionsRetry({ client, open, endpoint, events, without }).start(body.open(), length);
    }
    const onOpened = (opened: OpenedFacts) => {
      this.#opened = opened;
    };
    return new SealedCall({ open, endpoint, client, opener, events, onOpened }).start(body.open());
  }

  #onHead(status: number, headers: HeaderList, sized: boolean): void {
    this.body.dropRaw();
    const opened = this.#opened;
    this.#answer = new EngineAnswer(this.endpoint, {
      status,
      headers,
      sized,
      dropUsage: opened?.dropUsage ?? this.open.dropUsage,
      promptBytes: opened?.promptBytes ?? this.body.incoming.received,
      uploadedMs: () => this.body.audioMs,
    });
    const engineTenths = Math.round(this.#clock.elapsed(this.#host.now()) * 10);
    const sealedHeaders = opened === undefined ? headers : opened.sealer.head(status, headers, this.#answer.streams);
    this.#head = { type: 'head', stream: this.#stream, status, engineTenths, headers: sealedHeaders };
    this.#host.onHead(status);
    // Engines write a stream's head and its first token separately, often without a pause.
    this.#link?.putSoon(this.#head);
  }

  #onData(chunk: Uint8Array): void {
    this.#progressAt = this.#host.patientNow();
    if (!this.#clock.hasByte) {
      const firstMs = this.#clock.firstByte(this.#host.now());
      if (this.#answer?.streams === true) this.#host.onFirstToken(firstMs);
    }
    this.#give(this.#answer?.push(chunk, this.#progressAt) ?? []);
    if (this.#opened !== undefined) return this.#endAtFault();
    this.#link?.kick(this.#stream);
    this.#pauseWhenFull();
  }

  #pauseWhenFull(): void {
    if (this.#outgoing.unsent < UNSENT_MAX_BYTES || this.#paused) return;
    this.#paused = true;
    this.#call?.pause();
  }

  #give(pieces: readonly Uint8Array[]): void {
    if (this.#opened === undefined) for (const piece of pieces) this.#outgoing.push(piece);
    else this.#opened.sealer.gather(pieces, () => this.#sendSealed());
  }

  /**
   * Seals the bytes that arrived in one read of the engine's socket as one chunk. Runs when the task of that read has
   * ended, without a timer, so that no token is delayed.
   */
  #sendSealed(): void {
    if (this.finished || this.#opened === undefined) return;
    this.#outgoing.push(this.#opened.sealer.gathered());
    this.#link?.kick(this.#stream);
    this.#pauseWhenFull();
  }

  /**
   * Ends the attempt if the sealer has found a fault in the engine's stream. Another engine may continue the stream,
   * and the client does not see the fault.
   */
  #endAtFault(): void {
    if (this.#opened?.sealer.fault === undefined || this.finished) return;
    this.#call?.abort();
    this.#finish({ kind: 'reset', code: 'engine_closed', message: '' });
  }

  #resume(): void {
    if (!this.#paused || this.#outgoing.unsent >= UNSENT_MAX_BYTES / 2) return;
    this.#paused = false;
    this.#progressAt = this.#host.patientNow();
    this.#call?.resume();
  }

  #onBodyTaken(bytes: number): void {
    this.#progressAt = this.#host.patientNow();
    this.#link?.consumed(bytes);
    const credit = this.#link && this.body.incoming.credit(this.#link.pool);
    if (credit !== undefined) this.#link?.put({ type: 'credit', stream: this.#stream, ...credit });
  }

  #finish(reported: EngineAnswerEnd): void {
    if (this.finished) return;
    const broken = this.#opened?.sealer.fault !== undefined;
    const { ending, flush, usage } = this.#answer?.end(reported, broken) ?? failedOutcome(reported);
    this.#usage = usage;
    this.#give(flush);
    if (this.#head === undefined) this.#opened?.unanswered();
    else if (this.#opened !== undefined) this.#outgoing.push(this.#opened.sealer.last(ending.kind === 'end'));
    this.#outgoing.finish();
    // An engine's failure message may quote the request, so it is not sent for a sealed request.
    this.#ending = ending.kind === 'reset' && isSealed(this.open) ? { ...ending, message: 'sealed' } : ending;
    const prompt = ending.kind === 'end' && this.#head?.status === 200 ? this.body.takeKept() : undefined;
    this.body.abandon();
    this.body.dropRaw();
    this.#shrink();
    // The attempt stays in memory until the gateway has stored its usage, for about a quarter of a second. So release
    // everything that is no longer needed.
    this.#call = undefined;
    this.#answer = undefined;
    const timings = this.#clock.report(this.#head?.status ?? 0, this.#host.now());
    if (this.#usage !== undefined) this.#host.onReport(this, this.#usage, timings);
    if (prompt !== undefined) this.#host.onPrompt(this, prompt);
    this.#link?.kick(this.#stream);
    this.#host.onIdle(this);
  }

  #shrink(): void {
    if (this.#link !== undefined) this.body.incoming.shrink(this.#link.pool);
  }

  #endingFrames(): Frame[] {
    const ending = this.#ending;
    if (ending === undefined) return [];
    this.#reported = true;
    const stream = this.#stream;
    const last: Frame =
      ending.kind === 'end'
        ? { type: 'end', stream, offset: this.#outgoing.length }
        : { type: 'reset', stream, code: ending.code, message: ending.message };
    return this.#usage === undefined
      ? [last]
      : [last, { type: 'report', stream, usage: readableUsage(this.#usage, this.#host.reads()) }];
  }

  /** Call when the gateway does not need the response any more. */
  cancel(): void {
    if (this.finished) return;
    this.#call?.abort();
    const link = this.#link;
    link?.detach(this.#stream);
    // Finish before the link is forgotten, so that the link gets the credit of bytes that the engine did not read.
    this.#finish({ kind: 'reset', code: 'cancelled', message: '' });
    this.#link = undefined;
    this.#reportUsage(link);
  }

  #reportUsage(link: Link | undefined): void {
    this.#reported = true;
    if (this.#usage !== undefined) link?.put({ type: 'report', stream: this.#stream, usage: this.#usage });
  }

  /**
   * Call when the attempt is not needed any more. Otherwise the link would keep the attempt's response in memory until
   * the socket ends.
   */
  release(): void {
    this.cancel();
    if (!this.#reported) this.#reportUsage(this.#link); // the ending was queued after data that is no longer needed
    this.#link?.detach(this.#stream);
    this.#link = undefined;
  }

  /**
   * Drops the rest of a finished response and resets the stream. Otherwise its reader would wait for bytes that never
   * arrive.
   */
  dropAnswer(): void {
    if (!this.finished || this.#reported) return;
    const link = this.#link;
    link?.detach(this.#stream);
    link?.put({
      type: 'reset',
      stream: this.#stream,
      code: 'engine_closed',
      message: 'the agent no longer stores the response',
    });
  }

  /** Call when the agent ends: the gateway gets no more of the response. */
  giveUp(): void {
    if (this.finished) return;
    this.#call?.abort();
    this.#finish({ kind: 'reset', code: 'engine_closed', message: 'the agent is shutting down' });
  }

  /**
   * Ends an attempt that has stalled. Timeouts limit the time without a byte, never the total time. A client that does
   * not read does not count as a stall of the engine.
   * @param now the host's `patientNow`
   */
  tick(now: number): void {
    if (this.#unclaimedUntil !== undefined && now >= this.#unclaimedUntil) return this.cancel();
    if (this.finished || this.#paused || this.#call === undefined) return;
    if (this.#answer?.lingers(now) === true) {
      this.#call.abort();
      return this.#finish(NORMAL_END);
    }
    const limit = this.#clock.hasByte ? this.open.stallMs : this.open.firstByteMs;
    if (limit === 0 || now - this.#progressAt < limit) return;
    this.#call.abort();
    const code = this.#clock.hasByte ? 'stall_timeout' : 'first_byte_timeout';
    this.#finish({ kind: 'reset', code, message: `the engine sent nothing for ${limit} ms` });
  }

  /** True if the attempt is finished and no gateway claimed it in time, so that it may be dropped. */
  forgettable(now: number): boolean {
    return this.finished && this.#unclaimedUntil !== undefined && now >= this.#unclaimedUntil;
  }
}

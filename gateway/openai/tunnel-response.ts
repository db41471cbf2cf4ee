import { AttemptError } from '../../shared/attempts/attempt-error.ts';
import type { AttemptBody, AttemptHead, AttemptRequest, ResultOf } from '../../shared/attempts/attempt-request.ts';
import { PieceReader } from '../../shared/attempts/piece-reader.ts';
import { NO_BODY, type ResponseOffloadHandle, type ResponseStream } from '../../shared/attempts/started-response.ts';
import { RESUME_WINDOW_MS } from '../../shared/wire/protocol-constants.ts';
import { waitClock } from '../platform/wait-clock.ts';
import { callTunnel, type RequestScope } from '../tunnel/call/call-tunnel.ts';
import { OffloadedResponse } from '../tunnel/offload/offloaded-response.ts';

/**
 * Maximum time for claiming the rest of a cut response from the next instance of the session's tunnel object. The agent
 * keeps the rest for 10 s after it lost its socket.
 */
const CLAIM_MS = 15_000;
const CLAIM_PAUSE_MS = 100;

/** What is needed to open an attempt at a session, and to claim the rest of its response. */
interface TunnelAttempt {
  scope: RequestScope;
  session: string;
  open: AttemptRequest;
  body: AttemptBody;
  /**
   * The body that a claim sends. A body in memory is sent again, in case the agent did not get all of it. Null if the
   * body was streamed: then the agent has all bytes that were sent.
   */
  claimBody: AttemptBody;
  /** True if the client disconnected or stopped sending its body. Then nothing is claimed. */
  clientDisconnected(): boolean;
}

type Answer = ResultOf<'whole' | 'stream' | 'offloaded'>;

/**
 * One engine's response, read as a stream. The object that carries it may be redeployed or evicted at any time. The
 * rest is then claimed from the next instance, and the reader gets one complete response.
 */
export class TunnelResponse implements ResponseStream {
  readonly status: number;
  readonly head: AttemptHead;
  readonly #attempt: TunnelAttempt;
  #answer: Answer;
  readonly #offloaded: OffloadedResponse | undefined;
  /** The bytes that arrived with the head; undefined after they were read. */
  #first: Uint8Array | undefined;
  #reader: PieceReader | undefined;
  #offset = 0;
  #started = false;

  private constructor(attempt: TunnelAttempt, answer: Answer) {
    this.#attempt = attempt;
    this.#answer = answer;
    this.#first = firstOf(answer);
    this.status = answer.status;
    this.head = answer.head;
    if (answer.kind === 'offloaded')
      this.#offloaded = new OffloadedResponse(attempt.scope, attempt.session, attempt.open, answer.rest);
  }

  /** @throws AttemptError if no engine's head arrived */
  static async open(attempt: TunnelAttempt): Promise<TunnelResponse> {
    return new TunnelResponse(attempt, await ask(attempt));
  }

  /** Returns the next bytes, or undefined at the complete end. @throws AttemptError if the rest is not available */
  async read(): Promise<Uint8Array | undefined> {
    for (;;) {
      try {
        const value = await this.#next();
        if (value === undefined) return undefined;
        this.#offset += value.length;
        return value;
      } catch {
        await this.#claim();
      }
    }
  }

  async #next(): Promise<Uint8Array | undefined> {
    const answer = this.#answer;
    this.#started = true;
    if (answer.kind === 'stream') {
      this.#reader ??= new PieceReader(answer.open());
      return this.#reader.read();
    }
    const first = this.#first;
    this.#first = undefined;
    if (first === undefined && answer.kind === 'offloaded')
      throw new Error('the rest of an offloaded response must be claimed');
    return first;
  }

  /**
   * The whole body, or a stream of known length; the caller uses it instead of `read`, and detects a cut stream by its
   * length. Undefined if the length is unknown, if the response is offloaded, or if reading has begun.
   */
  get whole(): Uint8Array | ReadableStream<Uint8Array> | null | undefined {
    const answer = this.#answer;
    if (this.#started) return undefined;
    if (answer.kind === 'whole') return NO_BODY.has(answer.status) ? null : answer.bytes;
    return this.length === undefined || answer.kind === 'offloaded' ? undefined : answer.open();
  }

  /** Length in bytes of a `whole` that is a stream. Undefined: unknown. */
  get length(): number | undefined {
    return this.#answer.kind === 'stream' ? this.#answer.length : undefined;
  }

  /** Handle with which another part of the host writes the rest of the response. Undefined: the rest is read here. */
  get offload(): ResponseOffloadHandle | undefined {
    const offloaded = this.#answer.kind === 'offloaded' ? this.#offloaded : undefined;
    return offloaded && { rest: offloaded.number, over: () => offloaded.over() };
  }

  async #claim(): Promise<void> {
    this.#answer = await ask(this.#attempt, this.#offset);
    this.#first = firstOf(this.#answer);
    this.#reader = undefined;
  }

  /** Stops reading and cancels the engine's work. */
  async cancel(): Promise<void> {
    const answer = this.#answer;
    if (answer.kind === 'offloaded') this.#offloaded?.leave();
    try {
      if (this.#reader !== undefined) await this.#reader.cancel();
      else if (answer.kind === 'stream') await answer.open().cancel();
    } catch {
      // the stream is already cut
    }
  }
}

function firstOf(answer: Answer): Uint8Array | undefined {
  switch (answer.kind) {
    case 'whole':
      return answer.bytes;
    case 'offloaded':
      return answer.first;
    case 'stream':
      return undefined;
  }
}

/**
 * Opens the attempt at the session's object, or claims its response from byte `offset` on. If the object throws, the
 * runtime is replacing it. Then its next instance is called, for up to CLAIM_MS.
 * @throws AttemptError
 */
async function ask(attempt: TunnelAttempt, offset?: number): Promise<Answer> {
  const result = await persist(attempt, offset);
  if (result.kind === 'failure') throw new AttemptError(result.code, result.message);
  return result;
}

async function persist(attempt: TunnelAttempt, offset: number | undefined): Promise<Answer | ResultOf<'failure'>> {
  const { scope, session, open, clientDisconnected } = attempt;
  const deadline = waitClock.now() + CLAIM_MS;
  const opens = offset === undefined;
  const request = opens
    ? open
    : { ...open, resume: true, offload: false, answerOffset: offset, acceptMs: RESUME_WINDOW_MS };
  const body = opens ? attempt.body : attempt.claimBody;
  while (!clientDisconnected()) {
    try {
      return await callTunnel(scope, session, request, body);
    } catch (error) {
      if (clientDisconnected()) break; // the client disconnected, so the error is not a failure of the object
      if (isOverloaded(error)) throw new AttemptError('overloaded', 'the tunnel accepts no more requests');
      if (waitClock.now() > deadline) throw new AttemptError('lost', 'the tunnel has closed');
      await new Promise((resolve) => setTimeout(resolve, CLAIM_PAUSE_MS));
    }
  }
  return { kind: 'failure', code: 'cancelled', message: 'the client disconnected' };
}

function isOverloaded(error: unknown): boolean {
  return typeof error === 'object' && error !== null && 'overloaded' in error && error.overloaded === true;
}

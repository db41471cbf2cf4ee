/** One sealed request to the engine: the body is collected, opened, checked, and sent on like an unsealed request. */

// Not by name: a Node that is too old lacks `isUtf8`, and must be able to say so.
import * as buffer from 'node:buffer';
import { hash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { parseBody, type RequestFields } from '../../shared/attempts/parsed-request.ts';
import { ApiError, errorBodyFor, toApiError } from '../../shared/openai/api-errors.ts';
import { type Edit, EditedBody, withoutUsage } from '../../shared/openai/body-edits.ts';
import { planContinuation } from '../../shared/openai/continuation/continuation-plan.ts';
import { SplicedStream } from '../../shared/openai/continuation/spliced-stream.ts';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import { headersToEngine } from '../../shared/openai/forwarded-headers.ts';
import {
  EVIDENCE_PATH,
  type EvidenceAnswer,
  evidenceMessage,
  readEvidenceRequest,
} from '../../shared/seal/attestation-evidence.ts';
import { SEAL_TO_HEADER, SEALED_BODY_MAX_BYTES } from '../../shared/seal/hpke-suite.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { OpenFrame } from '../../shared/wire/frames.ts';
import type { AnswerSealer } from '../seal/answer-sealer.ts';
import type { ReplayedStream } from '../seal/replayed-stream.ts';
import type { OpenedRequest, SealOpener } from '../seal/seal-opener.ts';
import type { EngineCall, EngineEvents } from './engine-call.ts';
import type { EngineClient } from './engine-client.ts';
import { HeldBody } from './held-body.ts';
import { askEngine, continueReplayed } from './sealed-continuation.ts';
import { StreamOptionsRetry } from './stream-options-retry.ts';

/** The message of every refusal, regardless of the cause. */
const REFUSED = 'this node cannot open this sealed request';

/** Facts that are known after the request was opened. */
export interface OpenedFacts {
  sealer: AnswerSealer;
  dropUsage: boolean;
  promptBytes: number;
  unanswered(): void;
}

interface Options {
  open: OpenFrame;
  endpoint: Endpoint;
  client: EngineClient;
  opener: SealOpener;
  events: EngineEvents;
  /** Called before the first of the other events. */
  onOpened(opened: OpenedFacts): void;
}

/** @throws ApiError 400 */
function nonceOf(body: Buffer): Uint8Array {
  try {
    return readEvidenceRequest(JSON.parse(body.toString()));
  } catch (cause) {
    throw new ApiError('invalid_request', 'nonce must be 32 bytes in base64url.', { param: 'nonce', cause });
  }
}

export function isSealed(open: OpenFrame): boolean {
  return open.headers.some(([name]) => name === SEAL_TO_HEADER);
}

/** Applies the edits that a gateway applies to unsealed bodies. */
function edited(edits: readonly Edit[], body: Buffer): Buffer {
  if (edits.length === 0) return body;
  const made = new EditedBody(edits);
  return Buffer.concat([...made.push(body), ...made.end()]);
}

export class SealedCall implements EngineCall {
  readonly #options: Options;
  readonly #body: HeldBody;
  #call: EngineCall | undefined;
  #finished = false;

  constructor(options: Options) {
    this.#options = options;
    // The fields `model` and `stream` may be at the end of a body, so the whole body is held in memory.
    const onRefused = () => this.#fail('overloaded', 'this node already stores too many sealed bodies');
    this.#body = new HeldBody({ maxBytes: SEALED_BODY_MAX_BYTES, memory: options.opener, onRefused });
  }

  start(content: Buffer | Readable): this {
    neverRejects(this.#run(content));
    return this;
  }

  async #run(content: Buffer | Readable): Promise<void> {
    const body = await this.#body.read(content);
    if (body === undefined) return this.#end();
    const { opener, open, endpoint, onOpened } = this.#options;
    let opened: OpenedRequest;
    try {
      opened = opener.open({ headers: open.headers, endpoint, streaming: open.streaming }, body);
    } catch {
      return this.#fail('seal_refused', REFUSED);
    }
    const { sealer, unanswered, sent } = opened;
    try {
      const known = this.#parsed(opened, opened.body);
      this.#requireMatch(opened, known);
      if (this.#options.endpoint.path === EVIDENCE_PATH) return await this.#sendEvidence(opened);
      const body = sent === undefined ? this.#begin(opened) : await this.#continue(opened, sent);
      if (body === undefined || this.#finished) return;
      const { edits } = body === opened.body ? known : this.#parsed(opened, body);
      onOpened({ sealer, dropUsage: edits.length > 0, promptBytes: body.length, unanswered });
      this.#ask(opened, edits, body);
    } catch (error) {
      onOpened({ sealer, dropUsage: false, promptBytes: 0, unanswered });
      this.#refuse(toApiError(error));
    }
  }

  /**
   * Answers with evidence of this machine. The answer also proves that this agent can open the request.
   * @throws ApiError
   */
  async #sendEvidence({ body, key, sealer, unanswered }: OpenedRequest): Promise<void> {
    const { events, onOpened, opener } = this.#options;
    const { evidence } = opener;
    if (evidence === undefined) throw new ApiError('not_found', 'This node has no evidence of its machine.');
    const nonce = nonceOf(body);
    const report = await evidence.report(hash('sha512', evidenceMessage(key, nonce), 'buffer'));
    if (this.#finished) return;
    if (report === undefined) throw new ApiError('server_is_overloaded', 'This node has no evidence at the moment.');
    const answer: EvidenceAnswer = {
      object: 'otela.evidence',
      kinds: [...evidence.kinds],
      evidence: report.toString('base64'),
    };
    onOpened({ sealer, dropUsage: false, promptBytes: 0, unanswered });
    this.#end();
    events.onHead(200, [['content-type', 'application/json']], true);
    events.onData(Buffer.from(JSON.stringify(answer)));
    events.onEnd();
  }

  /** The body for the engine. If another node may continue the stream, the sealer sends only whole events. */
  #begin({ resume, body, sealer }: OpenedRequest): Buffer {
    const plan = resume ? planContinuation(this.#options.endpoint, body) : undefined;
    if (plan !== undefined && !('why' in plan)) sealer.joins(new SplicedStream(plan));
    return body;
  }

  /**
   * The request with which the engine continues the stream. Undefined if the engine is not asked: the text is already
   * complete, or this engine cannot continue it.
   */
  async #continue(opened: OpenedRequest, sent: ReplayedStream): Promise<Buffer | undefined> {
    const { client, endpoint, events, onOpened } = this.#options;
    const { sealer, body, unanswered } = opened;
    const ask = (id: number, question: Uint8Array) => askEngine(client, this.#options.open, id, question);
    const next = await continueReplayed({ endpoint, body, sent, ask });
    if (this.#finished) return undefined;
    if (next.kind === 'ask') sealer.joins(next.joined);
    if (next.kind === 'ask') return next.body;
    onOpened({ sealer, dropUsage: false, promptBytes: 0, unanswered });
    if (next.kind === 'unfit') this.#fail('seal_refused', REFUSED);
    else {
      this.#end();
      events.onHead(200, [['content-type', 'text/event-stream']], true);
      sealer.gather(next.rest, () => {}); // bypasses the usage meter, because the previous nodes have counted these bytes
      events.onEnd();
    }
    return undefined;
  }

  /** Returns the whole body. Undefined if the body ended early, or does not fit into memory. */
  /**
   * Requires that the sealed body has the same `model` and `stream` as the clear part of the request.
   * @throws ApiError 400
   */
  #requireMatch(opened: OpenedRequest, known: RequestFields): void {
    if (known.model === opened.model && known.streaming === this.#options.open.streaming) return;
    const message = 'The model or the stream flag of the sealed body differs from those in the headers.';
    throw new ApiError('invalid_request', message);
  }

  #parsed({ headers }: OpenedRequest, body: Buffer): RequestFields {
    const contentType = headers.find(([name]) => name === 'content-type')?.[1] ?? '';
    return parseBody(body, contentType, this.#options.endpoint, buffer.isUtf8);
  }

  #ask({ headers }: OpenedRequest, edits: readonly Edit[], body: Buffer): void {
    const { open, endpoint, client } = this.#options;
    const [inside, outside] = [new Map(headers), new Map(open.headers)];
    const value = (name: string) => (name.startsWith('trace') ? outside.get(name) : inside.get(name));
    const cleared = { ...open, edits: [], headers: headersToEngine(value, outside.get('x-request-id')) };
    const events: EngineEvents = {
      ...this.#options.events,
      onEnd: () => {
        this.#end();
        this.#options.events.onEnd();
      },
      onError: (code, message) => this.#fail(code, message),
    };
    const plain = withoutUsage(edits);
    const asks = plain.length < edits.length && client.usage.state !== 'refused';
    const without = () => edited(plain, body);
    if (!asks) {
      const content = without();
      this.#call = client.call(cleared, endpoint, content, content.length, events);
      return;
    }
    const content = edited(edits, body);
    this.#call = new StreamOptionsRetry({ client, open: cleared, endpoint, events, without }).start(
      content,
      content.length,
    );
  }

  /** Sends the error, sealed like a response of the engine. */
  #refuse(error: ApiError): void {
    const { events, endpoint } = this.#options;
    this.#end();
    events.onHead(error.status, [['content-type', 'application/json']], true);
    events.onData(Buffer.from(errorBodyFor(endpoint, error)));
    events.onEnd();
  }

  #fail(code: Parameters<EngineEvents['onError']>[0], message: string): void {
    if (this.#finished) return;
    this.#end();
    this.#options.events.onError(code, message);
  }

  #end(): void {
    this.#finished = true;
    this.#body.end();
  }

  pause(): void {
    this.#call?.pause();
  }

  resume(): void {
    this.#call?.resume();
  }

  abort(): void {
    this.#end();
    this.#call?.abort();
  }
}

/**
 * A request of an API that the engine lacks: it goes to the engine's /v1/chat/completions, and the answer comes back in
 * the API that the client called. shared/openai/translation has the rules.
 */
import { randomUUID } from 'node:crypto';
import type { Readable } from 'node:stream';
import { isEventStreamType } from '../../shared/attempts/started-response.ts';
import { ApiError, anthropicErrorBody, errorBodyFor, toApiError } from '../../shared/openai/api-errors.ts';
import { type Endpoint, findEndpoint } from '../../shared/openai/endpoints.ts';
import { ChatStream, EngineFault, errorOf, translateAnswer } from '../../shared/openai/translation/chat-answer.ts';
import {
  TRANSLATED_HEADER,
  type TranslatedApi,
  type TranslatedRequest,
  translateRequest,
} from '../../shared/openai/translation/translation.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { OpenFrame, ResetCode } from '../../shared/wire/frames.ts';
import type { HeaderList } from '../../shared/wire/header-codec.ts';
import type { EngineCall, EngineConnection, EngineEvents } from './engine-call.ts';
import { HeldBody } from './held-body.ts';
import { relabelStream } from './mislabeled-stream.ts';
import type { BodyBudget } from './prefill-engines.ts';
import { StreamOptionsRetry, type UsageOptions } from './stream-options-retry.ts';

/** Maximum length of a request's body, which is held in memory. Images in a prompt make it long. */
const BODY_MAX_BYTES = 16 * 1024 * 1024;
/** Maximum length of a non-streaming answer, and of an error. */
const ANSWER_MAX_BYTES = 16 * 1024 * 1024;
const COMMENT = ':\n\n';

interface Options {
  client: EngineConnection & { readonly usage: UsageOptions };
  api: TranslatedApi;
  /** Of all translated requests at this engine. */
  budget: BodyBudget;
  open: OpenFrame;
  endpoint: Endpoint;
  events: EngineEvents;
}

export class TranslatedCall implements EngineCall {
  readonly #options: Options;
  readonly #body: HeldBody;
  #call: EngineCall | undefined;
  #paused = false;
  #finished = false;
  #writer: TranslatedRequest['writer'] | undefined;
  /** Set if the engine's answer is a stream. */
  #stream: ChatStream | undefined;
  #status = 0;
  #headers: HeaderList = [];
  #chunks: Uint8Array[] = [];
  #bytes = 0;

  constructor(options: Options) {
    this.#options = options;
    const onRefused = (why: 'too long' | 'no memory') => {
      if (why === 'too long') this.#tooLong();
      else this.#fail('overloaded', 'the bodies of translated requests use all of their memory budget');
    };
    this.#body = new HeldBody({ maxBytes: BODY_MAX_BYTES, memory: options.budget, onRefused });
  }

  start(content: Buffer | Readable): this {
    neverRejects(this.#run(content));
    return this;
  }

  async #run(content: Buffer | Readable): Promise<void> {
    const body = await this.#body.read(content);
    if (body === undefined) return this.#body.giveBack();
    const { api, open, endpoint, events } = this.#options;
    let request: TranslatedRequest;
    try {
      const given = { id: randomUUID(), createdAt: Math.floor(Date.now() / 1000) };
      request = translateRequest(api, body, given);
    } catch (error) {
      const refusal = toApiError(error);
      this.#stop();
      events.onHead(refusal.status, [['content-type', 'application/json']], true);
      events.onData(Buffer.from(errorBodyFor(endpoint, refusal)));
      return events.onEnd();
    }
    this.#writer = request.writer;
    this.#ask(request, open.streaming ? relabelStream(this.#events()) : this.#events());
  }

  #tooLong(): void {
    const { endpoint, events } = this.#options;
    const message = `A node that translates ${endpoint.path} accepts bodies of at most ${BODY_MAX_BYTES} bytes.`;
    const error = new ApiError('request_too_large', message);
    this.#stop();
    events.onHead(error.status, [['content-type', 'application/json']], true);
    events.onData(Buffer.from(errorBodyFor(endpoint, error)));
    events.onEnd();
  }

  #ask({ body, without }: TranslatedRequest, events: EngineEvents): void {
    const { client, open } = this.#options;
    const hasOptions = body !== without && client.usage.state !== 'refused';
    const content = Buffer.from(hasOptions ? body : without);
    const whole: OpenFrame = { ...open, edits: [], bodyLength: content.length };
    if (!hasOptions || client.usage.state === 'taken')
      this.#call = client.call(whole, CHAT, content, content.length, events);
    else {
      const options = { client, open: whole, endpoint: CHAT, events, without: () => Buffer.from(without) };
      this.#call = new StreamOptionsRetry(options).start(content, content.length);
    }
    if (this.#paused) this.#call.pause();
  }

  #events(): EngineEvents {
    return {
      onHead: (status, headers) => this.#onHead(status, headers),
      onData: (chunk) => this.#guard(() => this.#onData(chunk)),
      onEnd: () => this.#guard(() => this.#onEnd()),
      onError: (code, message) => this.#fail(code, message),
    };
  }

  #onHead(status: number, headers: HeaderList): void {
    if (this.#finished) return;
    // Until now the engine may refuse the body, and then it is sent again.
    this.#body.giveBack();
    this.#status = status;
    this.#headers = [...headers.filter(([name]) => name !== 'content-encoding'), TRANSLATED_HEADER];
    if (headers.some(([name]) => name === 'content-encoding'))
      return this.#fail('engine_closed', 'the engine compressed its answer, so it cannot be translated');
    const type = headers.find(([name]) => name === 'content-type')?.[1] ?? '';
    if (status !== 200 || !isEventStreamType(type) || this.#writer === undefined) return;
    this.#stream = new ChatStream(this.#writer);
    this.#options.events.onHead(status, this.#headers, false);
  }

  #onData(chunk: Uint8Array): void {
    // A comment in place of nothing shows that the engine is alive.
    if (this.#stream !== undefined) return this.#send(this.#stream.push(chunk) || COMMENT);
    this.#bytes += chunk.length;
    if (this.#bytes > ANSWER_MAX_BYTES) throw new EngineFault('the engine’s answer is too long to translate');
    this.#chunks.push(chunk);
  }

  #onEnd(): void {
    const { events } = this.#options;
    if (this.#stream !== undefined) this.#send(this.#stream.end());
    else {
      const body = this.#status === 200 ? this.#whole() : this.#error();
      events.onHead(this.#status, this.#headers, true);
      this.#send(body);
    }
    this.#finished = true;
    events.onEnd();
  }

  #whole(): string {
    if (this.#writer === undefined) throw new EngineFault('the engine answered before it was asked');
    return translateAnswer(this.#writer, this.#chunks);
  }

  /** The engine's error, in the form that the client expects. */
  #error(): string {
    const text = Buffer.concat(this.#chunks).toString();
    const message = this.#options.api === 'messages' ? errorOf(tryParseJson(text)) : undefined;
    return message === undefined ? text : anthropicErrorBody(this.#status, message);
  }

  #send(text: string): void {
    if (text !== '') this.#options.events.onData(Buffer.from(text));
  }

  /** Ends the request if the engine's answer cannot be read. */
  #guard(read: () => void): void {
    if (this.#finished) return;
    try {
      read();
    } catch (error) {
      if (!(error instanceof EngineFault)) throw error;
      this.#fail('engine_closed', error.message);
    }
  }

  #fail(code: ResetCode, message: string): void {
    if (this.#finished) return;
    this.#stop();
    this.#options.events.onError(code, message);
  }

  #stop(): void {
    this.#finished = true;
    this.#body.end();
    this.#call?.abort();
    this.#chunks = [];
  }

  pause(): void {
    this.#paused = true;
    this.#call?.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#call?.resume();
  }

  abort(): void {
    this.#stop();
  }
}

const CHAT = chatEndpoint();

function chatEndpoint(): Endpoint {
  const found = findEndpoint('POST', '/v1/chat/completions');
  if (found === undefined || 'methodNotAllowed' in found) throw new Error('the table has no chat endpoint');
  return found;
}

/**
 * A request to a disaggregated pair of engines: the prefill engine computes the prompt, and the decode engine sends the
 * response. prefill-engines.ts chooses the pair.
 */

import { randomBytes } from 'node:crypto';
import type { Readable } from 'node:stream';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { OpenFrame, ResetCode } from '../../shared/wire/frames.ts';
import type { HeaderList } from '../../shared/wire/header-codec.ts';
import type { EngineCall, EngineConnection, EngineEvents } from './engine-call.ts';
import { HeldBody } from './held-body.ts';
import { decodeRequest, kvTransferParams, prefillRequest, sglangRequest } from './prefill-decode-bodies.ts';
import type { PairState } from './prefill-engines.ts';

/**
 * Maximum length of a body. Fields are appended at its end, so the whole body is held in memory. Images in a prompt
 * make it long.
 */
const BODY_MAX_BYTES = 16 * 1024 * 1024;
/**
 * Maximum length of a prefill engine's answer: one token and the ids of the prompt's blocks. 128 k tokens are 8,192
 * blocks.
 */
const ANSWER_MAX_BYTES = 1024 * 1024;

const DISAGGREGATED: ReadonlySet<string> = new Set(['/v1/chat/completions', '/v1/completions']);

/**
 * True for endpoints whose prompts go to the prefill engine. The decode engine serves all other endpoints without the
 * prefill engine.
 */
export const isDisaggregated = ({ path }: Endpoint): boolean => DISAGGREGATED.has(path);

interface Options {
  decode: EngineConnection;
  pair: PairState;
  open: OpenFrame;
  endpoint: Endpoint;
  events: EngineEvents;
}

export class DisaggregatedCall implements EngineCall {
  readonly #options: Options;
  readonly #body: HeldBody;
  #calls: EngineCall[] = [];
  #decode: EngineCall | undefined;
  #paused = false;
  /** True if the caller has received its error, or needs nothing more. */
  #finished = false;
  /** Call when the prefill engine has nothing more to do. */
  #prefillDone: () => void = () => {};

  constructor(options: Options) {
    this.#options = options;
    const onRefused = (why: 'too long' | 'no memory') => {
      if (why === 'too long') this.#tooLong();
      else this.#fail('overloaded', 'the request bodies for this pair of engines use all of their memory budget');
    };
    this.#body = new HeldBody({ maxBytes: BODY_MAX_BYTES, memory: options.pair, onRefused });
  }

  start(content: Buffer | Readable): this {
    this.#prefillDone = this.#options.pair.begin();
    neverRejects(this.#run(content));
    return this;
  }

  async #run(content: Buffer | Readable): Promise<void> {
    const body = await this.#body.read(content);
    if (body === undefined) {
      this.#prefillDone();
      return this.#body.giveBack();
    }
    if (this.#options.decode.target.engine === 'sglang') this.#runBoth(body);
    else this.#inTurn(body);
  }

  /**
   * vLLM: first sends the prefill request, then the decode request with the location of the keys and values. If the
   * prefill fails, the decode engine computes the prompt itself, so the request only takes longer.
   */
  #inTurn(body: Buffer): void {
    const { pair } = this.#options;
    const answer: Buffer[] = [];
    let [status, bytes] = [0, 0];
    const decode = (why: string | undefined) => {
      this.#prefillDone();
      if (this.#finished) return;
      const params = why === undefined ? kvTransferParams(Buffer.concat(answer)) : undefined;
      // After a 4xx the decode engine refuses the request as well, with its own message.
      if (params !== undefined) pair.works();
      else if (status < 400 || status >= 500) pair.failed(why ?? 'its response has no kv_transfer_params');
      this.#ask(decodeRequest(body, params ?? null));
    };
    this.#send(pair.prefill, prefillRequest(body), {
      onHead: (got) => {
        status = got;
      },
      onData: (chunk) => {
        bytes += chunk.length;
        if (bytes <= ANSWER_MAX_BYTES) answer.push(Buffer.from(chunk));
      },
      onEnd: () => {
        const long = bytes > ANSWER_MAX_BYTES ? `its response is longer than ${ANSWER_MAX_BYTES} bytes` : undefined;
        decode(status === 200 ? long : `status ${status}`);
      },
      onError: (_code, message) => decode(message),
    });
  }

  /**
   * SGLang: both requests run concurrently. The decode engine waits for the keys and values of the prefill engine, so a
   * failed prefill ends the request.
   */
  #runBoth(body: Buffer): void {
    const { pair } = this.#options;
    const { hostname } = new URL(pair.target.origin);
    const room = randomBytes(8).readBigUInt64BE() >> 1n;
    const request = sglangRequest(body, {
      host: hostname,
      port: pair.target.bootstrapPort,
      room,
    });
    let [answered, failed] = [false, false];
    this.#ask(request, () => {
      answered = true;
    });
    let relay: EngineEvents | undefined;
    this.#send(pair.prefill, request, {
      onHead: (status, headers, sized) => {
        failed = status >= 500;
        if (failed) pair.failed(`status ${status}`);
        if (status < 400 || answered || this.#finished) return;
        // The prefill engine's refusal becomes the response, because the decode engine waits for keys and values that
        // will not arrive.
        this.#decode?.abort();
        this.#body.giveBack(); // the decode engine's call reports nothing after an abort
        relay = this.#options.events;
        relay.onHead(status, headers, sized);
      },
      onData: (chunk) => relay?.onData(chunk),
      onEnd: () => {
        this.#prefillDone();
        if (!failed) pair.works();
        relay?.onEnd();
      },
      onError: (code, message) => {
        this.#prefillDone();
        pair.failed(message);
        if (!answered || relay !== undefined) this.#fail(code, `prefill engine: ${message}`);
      },
    });
  }

  /** Sends the request to the decode engine, and its response to the client. */
  #ask(request: Buffer, onHead: () => void = () => {}): void {
    const { decode, events } = this.#options;
    this.#decode = this.#send(decode, request, {
      ...events,
      onHead: (status, headers, sized) => {
        onHead();
        this.#body.giveBack();
        // No engine needs the keys and values of the prefill engine any more.
        if (status >= 400) this.#abortPrefill();
        events.onHead(status, headers, sized);
      },
      onError: (code, message) => this.#fail(code, message),
    });
    if (this.#paused) this.#decode.pause();
  }

  #send(client: EngineConnection, request: Buffer, events: EngineEvents): EngineCall {
    const { open, endpoint } = this.#options;
    const call = client.send(open, endpoint, request, request.length, events);
    this.#calls.push(call);
    return call;
  }

  #abortPrefill(): void {
    for (const call of this.#calls) if (call !== this.#decode) call.abort();
    this.#prefillDone();
  }

  #tooLong(): void {
    const message = `a pair of prefill and decode engines accepts bodies of at most ${BODY_MAX_BYTES} bytes`;
    const error = { message, type: 'invalid_request_error', param: null, code: 'request_too_large' };
    const headers: HeaderList = [['content-type', 'application/json']];
    const { events } = this.#options;
    this.#stop();
    events.onHead(413, headers, true);
    events.onData(Buffer.from(JSON.stringify({ error })));
    events.onEnd();
  }

  #fail(code: ResetCode, message: string): void {
    if (this.#finished) return;
    this.#stop();
    this.#options.events.onError(code, message);
  }

  #stop(): void {
    this.#finished = true;
    this.#body.end();
    for (const call of this.#calls) call.abort();
    this.#prefillDone();
  }

  pause(): void {
    this.#paused = true;
    this.#decode?.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#decode?.resume();
  }

  abort(): void {
    this.#stop();
  }
}

import type { IncomingMessage, ServerResponse } from 'node:http';
import { type Answer, type Ask, FINGERPRINT, json, NO_PATH, refuse } from './answer.ts';
import { type Behaviour, behaviourSchema, controlSchema } from './behaviour.ts';
import { readBody } from './body.ts';
import { chat, completions } from './chat.ts';
import { CACHE_CONFIG, type EngineForm, type FormOptions, formAnswer, listedModel, showAnswer } from './forms.ts';
import { Freeze } from './freeze.ts';
import { changedPicture, images, video } from './images.ts';
import { Journal } from './journal.ts';
import { KvTransfer, type Role } from './kv-transfer.ts';
import { Management } from './management.ts';
import { classify, embeddings, moderations, pooling, rerank, score, speech, transcription } from './pooling.ts';
import { type EngineRequest, RequestLog } from './record.ts';
import { countMessageTokens, messages, responses } from './responses.ts';
import { send } from './sender.ts';
import { Slots } from './slots.ts';
import { StoredResponses } from './stored-responses.ts';
import { detokenize, tokenize, tokensAlready } from './tokens.ts';
import { countTokens } from './words.ts';

export interface EngineOptions {
  /** Port; default 0: any free port. */
  port?: number;
  host?: string;
  /** Names of the served models; default: `['stand-in']`. */
  models?: string[];
  /** Behavior for requests that do not set their own. */
  behaviour?: Behaviour;
  /** API key, which requests must send as a bearer token. */
  apiKey?: string;
  /** Prefix of every path, e.g. `/llm`. */
  pathPrefix?: string;
  maxModelLen?: number;
  /** Answers that run concurrently; further ones wait. Default: no limit. */
  slots?: number;
  /** Prompt tokens/s, before the answer's first token. Default: no time. */
  promptRate?: number;
  /**
   * The engine that the mock says it is. Default: none, with a list like vLLM's. `sglang` has rerank and score only
   * under /v1, as SGLang does.
   */
  form?: EngineForm;
  /** Directory or file of the checkpoint that the form reports. */
  checkpoint?: string;
  /** True: it can sleep; see `management.ts`. */
  sleepMode?: boolean;
  /** True: it loads LoRA adapters at run time. */
  lora?: boolean;
  /** Like SGLang: weights stay in the machine's memory while it sleeps. */
  cpuBackup?: boolean;
  /** File of the journal, see `journal.ts`. */
  journal?: string;
  /** One half of a disaggregated pair. */
  role?: Role;
}

const ENDPOINTS: Record<string, (ask: Ask) => Answer> = {
  '/v1/chat/completions': chat,
  '/v1/completions': completions,
  '/v1/responses': responses,
  '/v1/messages': messages,
  '/v1/messages/count_tokens': countMessageTokens,
  '/v1/embeddings': embeddings,
  // vLLM serves these at its root; a gateway that sends them to /v1 gets a 404.
  '/rerank': rerank,
  '/score': score,
  '/classify': classify,
  '/tokenize': tokenize,
  '/detokenize': detokenize,
  '/pooling': pooling,
  '/v1/moderations': moderations,
  '/v1/audio/speech': speech,
  '/v1/images/generations': images,
};

const SGLANG: Record<string, string> = { '/v1/rerank': '/rerank', '/v1/score': '/score', '/rerank': '', '/score': '' };

const UPLOADS: Record<string, (bytes: number) => Answer> = {
  '/v1/audio/transcriptions': transcription,
  '/v1/audio/translations': transcription,
  '/v1/images/edits': changedPicture,
  '/v1/images/variations': changedPicture,
  '/v1/videos/sync': video,
};
const DEFAULT_TOKENS = 24;

/** An agent asks an engine for facts there. These are not requests for inference, so they are not recorded. */
const FACT_PATHS: ReadonlySet<string> = new Set([
  ...['/api/version', '/api/ps', '/info', '/props', '/version'],
  ...['/server_info', '/get_server_info', '/model_info', '/get_model_info'],
]);

/** Answers requests, and records them. */
export class MockEngine {
  readonly log = new RequestLog();
  readonly #options: EngineOptions;
  readonly #slots: Slots;
  readonly #freeze = new Freeze();
  readonly #journal: Journal | undefined;
  readonly #responses = new StoredResponses();
  readonly management: Management;
  readonly transfer: KvTransfer | undefined;
  models: string[];
  #control: { behaviour: Behaviour; left: number } = { behaviour: {}, left: 0 };

  constructor(options: EngineOptions) {
    this.#options = options;
    this.models = options.models ?? ['stand-in'];
    const { sleepMode = false, lora = false, cpuBackup = false, checkpoint = this.models[0] ?? '' } = options;
    this.management = new Management({ sglang: options.form === 'sglang', sleepMode, lora, cpuBackup, checkpoint });
    this.transfer = options.role && new KvTransfer(options.role);
    this.#slots = new Slots(options.slots ?? Number.POSITIVE_INFINITY);
    this.#journal = options.journal === undefined ? undefined : new Journal(options.journal);
  }

  control(behaviour: Behaviour, requests = Number.POSITIVE_INFINITY): void {
    this.#control = { behaviour, left: requests };
    this.#freeze.set(behaviour.fault === 'hang');
  }

  /** The models and the adapters that answer. */
  get #loaded(): readonly string[] {
    const bases = this.#bases;
    return bases.length === 0 ? bases : [...bases, ...this.management.adapters.keys()];
  }

  get #bases(): readonly string[] {
    return this.#control.left > 0 && this.#control.behaviour.forgets === true ? [] : this.models;
  }

  #nextBehaviour(): Behaviour {
    if (this.#control.left <= 0) return { ...this.#options.behaviour };
    this.#control.left--;
    return { ...this.#options.behaviour, ...this.#control.behaviour };
  }

  async handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const prefix = this.#options.pathPrefix ?? '';
    const url = req.url ?? '/';
    const path = new URL(url, 'http://engine').pathname;
    if (path.startsWith('/__kv/')) return this.#giveKv(res, path);
    if (path === '/__control' || path === '/__requests') return this.#operate(req, res, path);
    if (!path.startsWith(prefix)) return answerNow(res, NO_PATH);
    const local = path.slice(prefix.length);
    const probe = this.#probe(local, req.headers.authorization);
    if (req.method === 'GET' && probe !== undefined) return answerNow(res, probe);
    if (req.method === 'GET' && this.#isUnknownFact(local)) return answerNow(res, NO_PATH);
    if (req.method === 'POST' && local === '/api/show' && this.#options.form === 'ollama')
      return answerNow(res, showAnswer(await readJson(req), this.#form('ollama')));
    const request = this.log.begin(req.method ?? 'GET', url, flatHeaders(req));
    res.once('close', () => {
      const how = res.writableFinished ? 'finished' : 'aborted';
      this.log.end(request, how);
      if (ENDPOINTS[local] !== tokenize) this.#journal?.tell(how, request, res.statusCode);
    });
    this.log.changed(request);
    const behaviour = this.#nextBehaviour();
    if (behaviour.readBody === false) return;
    try {
      const answer = await this.#answer(local, req, request, behaviour);
      this.log.changed(request);
      if (ENDPOINTS[local] !== tokenize) this.#journal?.tell('begun', request);
      if (answer.kind !== 'json' || answer.tokens !== undefined) await this.#slots.take(res);
      if (!res.destroyed) await send(res, answer, { behaviour, freeze: this.#freeze }, request);
    } catch {
      res.destroy();
    }
  }

  #isUnknownFact(path: string): boolean {
    return FACT_PATHS.has(path) || (path === '/is_sleeping' && this.#options.sleepMode !== true);
  }

  /** Answers requests that are not inference. */
  #probe(path: string, authorization: string | undefined): Answer | undefined {
    if (path === '/health' || path === '/ping') return json({ status: 'ok' });
    if (path === '/metrics') return json(this.#metrics());
    const { form } = this.#options;
    const asForm = this.#form(form ?? 'vllm');
    if (path === '/version' && form === undefined) return json({ version: 'stand-in' });
    const about = path === '/v1/models' ? undefined : formAnswer(path, asForm);
    if (path !== '/v1/models' && about === undefined) return undefined;
    // vLLM's key protects only paths below /v1.
    if ((form !== 'vllm' || about === undefined) && !this.admits(authorization)) return json401();
    if (about !== undefined) return about;
    const fingerprint = form === undefined ? { owned_by: FINGERPRINT } : {};
    const data = this.#bases.map((id) => ({ ...listedModel(id, asForm), ...fingerprint }));
    // As in vLLM's and SGLang's lists, an adapter has its folder as `root`, and no maximum length.
    const adapters = [...this.management.adapters].map(([id, root]) => ({
      ...{ ...listedModel(id, asForm), ...fingerprint, root, parent: this.models[0], max_model_len: null },
    }));
    return json({ object: 'list', data: [...data, ...adapters] });
  }

  #form(form: EngineForm): FormOptions {
    const { checkpoint, maxModelLen = 32_768 } = this.#options;
    const { sleepMode = false, cpuBackup = false } = this.#options;
    return { form, checkpoint, maxModelLen, models: this.#bases, sleepMode, cpuBackup };
  }

  #metrics(): string {
    const { waiting } = this.#slots;
    const values = { num_requests_running: this.log.running - waiting, num_requests_waiting: waiting };
    const labels = `{engine="0",model_name="${this.models[0]}"}`;
    const lines = Object.entries({ ...values, generation_tokens_total: this.log.tokens }).map(
      ([name, value]) => `vllm:${name}${labels} ${value.toFixed(1)}\n`,
    );
    if (this.#options.form === 'vllm') lines.push(CACHE_CONFIG);
    // A second metric with the same values by reason: a reader that sums all would count twice.
    lines.push(
      `vllm:num_requests_waiting_by_reason${labels.replace('}', ',reason="capacity"}')} ${waiting.toFixed(1)}\n`,
    );
    return lines.join('');
  }

  admits(authorization: string | undefined): boolean {
    return this.#options.apiKey === undefined || authorization === `Bearer ${this.#options.apiKey}`;
  }

  async #answer(path: string, req: IncomingMessage, request: EngineRequest, behaviour: Behaviour): Promise<Answer> {
    const { json: body, start } = await readBody(req, request);
    const wish = behaviourSchema.safeParse(body?.stand_in);
    if (wish.success) Object.assign(behaviour, wish.data);
    else if (body?.stand_in !== undefined) return refuse(400, 'BadRequestError', `stand_in: ${wish.error.message}`);
    if (!this.admits(req.headers.authorization)) return json401();
    if (behaviour.status !== undefined && behaviour.bytes === undefined) {
      return refuse(behaviour.status, 'StandInError', `status ${behaviour.status} was asked for`);
    }
    if (behaviour.refusesUsage === true && body?.stream_options !== undefined)
      return refuse(400, 'extra_forbidden', "('body', 'stream_options'): Extra inputs are not permitted");
    const upload = UPLOADS[path];
    if (upload !== undefined) return this.#upload(start) ?? upload(request.bodyBytes);
    const { searchParams: query } = new URL(request.url, 'http://engine');
    const managed = await this.management.answer({ method: request.method, path, query, body, behaviour });
    if (managed !== undefined) return managed;
    const stored = this.#responses.answer(request.method, path, query);
    if (stored !== undefined) return stored;
    const endpoint = ENDPOINTS[(this.#options.form === 'sglang' ? SGLANG[path] : undefined) ?? path];
    if (endpoint === undefined) return NO_PATH;
    if (body === undefined) return refuse(400, 'BadRequestError', 'the body is no JSON object');
    const model = String(body.model);
    if (!this.#loaded.includes(model)) {
      const unknown = this.#unknownModel(model);
      return path === '/v1/messages' ? anthropic(unknown) : unknown;
    }
    const { trouble } = this.management;
    if (trouble !== undefined) return refuse(503, 'ServiceUnavailableError', trouble);
    const limit = tokenLimit(body);
    if (limit !== undefined && limit < 1)
      return refuse(400, 'BadRequestError', `max_tokens must be at least 1, got ${limit}.`);
    const ask = askOf(body, model, request, behaviour);
    const { promptRate } = this.#options;
    if (promptRate !== undefined) behaviour.delayMs ??= (1000 * countTokens(body.messages ?? body.prompt)) / promptRate;
    if (this.transfer === undefined) return endpoint === responses ? this.#responses.create(ask) : endpoint(ask);
    if (this.transfer.role === 'decode') {
      const lost = await this.transfer.receive(body);
      return lost === undefined ? endpoint(ask) : refuse(500, 'InternalServerError', lost);
    }
    const answer = endpoint(ask);
    const more = this.transfer.prefill(body, req.socket.localPort ?? 0);
    return answer.kind === 'json' ? { ...answer, body: { ...Object(answer.body), ...more } } : answer;
  }

  async #giveKv(res: ServerResponse, path: string): Promise<void> {
    const prompt = await this.transfer?.give(path.slice('/__kv/'.length));
    answerNow(res, prompt === undefined ? refuse(404, 'NotFoundError', 'no such keys and values') : json(prompt));
  }

  /** The refusal of a form that names another model. */
  #upload(start: string): Answer | undefined {
    const model = /name="model"\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]*)\r\n/.exec(start)?.[1];
    return model === undefined || this.#loaded.includes(model) ? undefined : this.#unknownModel(model);
  }

  #unknownModel(model: string): Answer {
    return refuse(404, 'NotFoundError', `The model \`${model}\` does not exist.`, 'model');
  }

  /** Answers paths that only tests use; engines do not have them. */
  async #operate(req: IncomingMessage, res: ServerResponse, path: string): Promise<void> {
    if (path === '/__requests') return answerNow(res, json({ running: this.log.running, requests: this.log.requests }));
    const control = controlSchema.safeParse(await readJson(req));
    if (!control.success) return answerNow(res, refuse(400, 'BadRequestError', control.error.message));
    this.control(control.data.behaviour, control.data.requests);
    answerNow(res, json({ ok: true }));
  }
}

async function readJson(req: IncomingMessage): Promise<unknown> {
  const pieces: Buffer[] = [];
  for await (const piece of req) pieces.push(Buffer.from(piece));
  return JSON.parse(Buffer.concat(pieces).toString() || '{}');
}

function tokenLimit({
  max_completion_tokens,
  max_tokens,
  max_output_tokens,
}: Record<string, unknown>): number | undefined {
  return [max_completion_tokens, max_tokens, max_output_tokens].find((value) => typeof value === 'number');
}

function askOf(body: Record<string, unknown>, model: string, request: EngineRequest, behaviour: Behaviour): Ask {
  const already = tokensAlready(body);
  const wanted = Math.max(0, (behaviour.tokens ?? DEFAULT_TOKENS) - already);
  const limit = tokenLimit(body);
  return {
    body,
    model: behaviour.claims ?? model,
    behaviour,
    already,
    tokens: Math.min(wanted, limit ?? wanted),
    finish: limit !== undefined && limit < wanted ? 'length' : 'stop',
    id: behaviour.id ?? `standin-${request.id}`,
    created: behaviour.id === undefined ? Math.floor(request.arrivedAt / 1000) : 0,
  };
}

/** vLLM's /v1/messages sends errors in Anthropic's form, except for malformed bodies, which get OpenAI's form. */
function anthropic(answer: Answer): Answer {
  if (answer.kind !== 'json') return answer;
  const { type, message } = Object(answer.body).error;
  return { ...answer, body: { type: 'error', error: { type, message } } };
}

function json401(): Answer {
  return { kind: 'json', status: 401, body: { error: 'Unauthorized' } };
}

function answerNow(res: ServerResponse, answer: Answer): void {
  if (answer.kind !== 'json') return;
  const plain = typeof answer.body === 'string';
  res.writeHead(answer.status, { 'content-type': plain ? 'text/plain' : 'application/json' });
  res.end(plain ? answer.body : JSON.stringify(answer.body));
}

function flatHeaders(req: IncomingMessage): Record<string, string> {
  return Object.fromEntries(Object.entries(req.headers).map(([name, value]) => [name, String(value)]));
}

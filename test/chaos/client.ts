/**
 * One request as a careful client sends it, and a verdict about its response: right, failed, visibly broken, or wrong.
 */
import { type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import { z } from 'zod';
import { text } from '../support/engine/words.ts';
import { MODEL } from './replica.ts';

/** `plain` is a stream that did not ask for `x-otela-resume`: it may break, but must report it. */
export type Kind = 'unary' | 'resumable' | 'plain';

export interface Wish {
  kind: Kind;
  path: '/v1/chat/completions' | '/v1/completions';
  marker: string;
  tokens: number;
  /** Disconnects after this many milliseconds. */
  leaveMs?: number;
}

export interface Target {
  port: number;
  key: string;
}

/** `false`: it looked complete and was not, or had text that the engine did not send. */
export type Verdict = 'ok' | 'failed' | 'broken' | 'false' | 'left';

export interface Result {
  wish: Wish;
  verdict: Verdict;
  /** Epoch milliseconds. */
  startedAt: number;
  endedAt: number;
  /** Milliseconds to the first token (streams), or to the response. */
  firstMs: number;
  status: number;
  attempts: number;
  node: string;
  /** True if a comment in the response shows that more than one node sent it. */
  continued: boolean;
  problem: string;
}

/** As patient as an ordinary SDK, and longer than any fault lasts. */
const PATIENCE_MS = 180_000;
const SAID_MAX = 300;

const usageSchema = z.object({ completion_tokens: z.number() });
const unarySchema = z.object({
  choices: z
    .array(z.object({ message: z.object({ content: z.string() }).optional(), text: z.string().optional() }))
    .length(1),
  usage: usageSchema,
});
const eventSchema = z.union([
  z.object({ error: z.object({ message: z.string(), code: z.string().nullish() }) }),
  z.object({
    id: z.string(),
    choices: z.array(
      z.object({
        delta: z.object({ content: z.string().nullish() }).optional(),
        text: z.string().optional(),
        finish_reason: z.string().nullish(),
      }),
    ),
  }),
]);

function bodyOf({ kind, path, marker, tokens }: Wish): string {
  const prompt = `[[${marker}]] Tell me about the weather on the Matterhorn.`;
  const asked = path === '/v1/completions' ? { prompt } : { messages: [{ role: 'user', content: prompt }] };
  return JSON.stringify({ model: MODEL, ...asked, max_tokens: tokens, ...(kind === 'unary' ? {} : { stream: true }) });
}

/** The events of a stream until now. */
class Reading {
  #rest = '';
  words = '';
  done = 0;
  finished = 0;
  error: string | undefined;
  continued = false;
  readonly ids = new Set<string>();
  onToken: () => void;

  constructor(onToken: () => void) {
    this.onToken = onToken;
  }

  take(piece: string): void {
    const events = (this.#rest + piece).split('\n\n');
    this.#rest = events.pop() ?? '';
    for (const event of events) for (const line of event.split('\n')) this.#line(line);
  }

  #line(line: string): void {
    if (line.startsWith(':')) {
      if (/continu|resum/i.test(line)) this.continued = true;
      return;
    }
    if (!line.startsWith('data: ')) return;
    const data = line.slice('data: '.length);
    if (data === '[DONE]') {
      this.done++;
      return;
    }
    const event = eventSchema.parse(JSON.parse(data));
    if ('error' in event) {
      this.error = `${event.error.code}: ${event.error.message}`;
      return;
    }
    this.ids.add(event.id);
    for (const choice of event.choices) {
      const words = choice.delta?.content ?? choice.text ?? '';
      if (words !== '') this.onToken();
      this.words += words;
      if (choice.finish_reason) this.finished++;
    }
  }

  /** The fault, as a complete response of `tokens` tokens; undefined: none. */
  fault(tokens: number): string | undefined {
    if (this.words !== text(tokens)) return differs(this.words, text(tokens));
    if (this.done !== 1) return `${this.done} times [DONE]`;
    if (this.finished !== 1) return `${this.finished} finish reasons`;
    return this.ids.size === 1 ? undefined : `${this.ids.size} ids`;
  }
}

function differs(got: string, expected: string): string {
  let at = 0;
  while (at < got.length && got[at] === expected[at]) at++;
  return `${got.length} of ${expected.length} characters, other ones from ${at} on: …${got.slice(Math.max(0, at - 20), at + 40)}`;
}

function judgeUnary(status: number, body: string, tokens: number): [Verdict, string] {
  if (status !== 200) return ['failed', `${status} ${body.slice(0, SAID_MAX)}`];
  const answer = unarySchema.safeParse(safeJson(body));
  if (!answer.success) return ['false', `no answer: ${body.slice(0, SAID_MAX)}`];
  const [choice] = answer.data.choices;
  const words = choice?.message?.content ?? choice?.text ?? '';
  if (words !== text(tokens)) return ['false', differs(words, text(tokens))];
  return answer.data.usage.completion_tokens === tokens ? ['ok', ''] : ['false', 'usage does not fit'];
}

function safeJson(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

function judgeStream(status: number, whole: boolean, reading: Reading, tokens: number): [Verdict, string] {
  if (status !== 200) return ['failed', `${status}`];
  if (reading.error !== undefined) return [reading.done > 0 ? 'false' : 'broken', reading.error];
  // A connection that ended without the end of the body shows a careful client that something is missing.
  if (!whole) return ['broken', 'the connection ended'];
  const fault = reading.fault(tokens);
  return fault === undefined ? ['ok', ''] : ['false', fault];
}

/**
 * Sends one request on a new connection, so that no stale pooled connection is used. Never rejects. `onToken` is called
 * for each token.
 */
export function ask(target: Target, wish: Wish, onToken: () => void = () => undefined): Promise<Result> {
  const startedAt = Date.now();
  const start = performance.now();
  const result: Result = {
    wish,
    verdict: 'failed',
    startedAt,
    endedAt: startedAt,
    firstMs: Number.NaN,
    status: 0,
    attempts: 0,
    node: '',
    continued: false,
    problem: '',
  };
  const first = () => {
    if (Number.isNaN(result.firstMs)) result.firstMs = performance.now() - start;
  };
  return new Promise((resolve) => {
    let ended = false;
    const end = (verdict: Verdict, problem = '') => {
      if (ended) return;
      ended = true;
      clearTimeout(timer);
      Object.assign(result, { verdict, problem, endedAt: Date.now() });
      resolve(result);
    };
    const leave = wish.leaveMs !== undefined;
    const asked = open(target, wish, (response) => {
      result.status = response.statusCode ?? 0;
      result.attempts = Number(response.headers['x-otela-attempts'] ?? 0);
      result.node = String(response.headers['x-otela-node'] ?? '');
      read(response, wish, result, { first, onToken, end });
    });
    const timer = setTimeout(() => {
      end(leave ? 'left' : 'failed', leave ? '' : `nothing more after ${PATIENCE_MS} ms`);
      asked.destroy();
    }, wish.leaveMs ?? PATIENCE_MS);
    asked.on('error', (error) => end('failed', `connection: ${error.message}`));
  });
}

function open(target: Target, wish: Wish, onAnswer: (response: IncomingMessage) => void): ClientRequest {
  const body = bodyOf(wish);
  const headers = {
    authorization: `Bearer ${target.key}`,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    ...(wish.kind === 'resumable' ? { 'x-otela-resume': '1' } : {}),
  };
  const options = { host: '127.0.0.1', port: target.port, path: wish.path, method: 'POST', headers, agent: false };
  const asked = httpRequest(options, onAnswer);
  asked.end(body);
  return asked;
}

interface Ears {
  first(): void;
  onToken(): void;
  end(verdict: Verdict, problem: string): void;
}

function read(response: IncomingMessage, wish: Wish, result: Result, { first, onToken, end }: Ears): void {
  const reading = new Reading(() => {
    first();
    onToken();
  });
  const streams = wish.kind !== 'unary' && result.status === 200;
  let body = '';
  let garbage: string | undefined;
  response.setEncoding('utf8');
  response.on('error', () => undefined);
  response.on('data', (piece: string) => {
    if (!streams) {
      body += piece;
      return;
    }
    try {
      reading.take(piece);
    } catch (error) {
      garbage ??= `an event that is none: ${String(error).slice(0, SAID_MAX)}`;
    }
  });
  response.on('close', () => {
    const whole = response.complete;
    result.continued = reading.continued;
    if (garbage !== undefined) return end('false', garbage);
    if (streams) return end(...judgeStream(result.status, whole, reading, wish.tokens));
    first();
    if (!whole) return end('failed', 'the connection ended inside the answer');
    return end(...judgeUnary(result.status, body, wish.tokens));
  });
}

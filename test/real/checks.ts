/**
 * What must hold between a client and a real engine, asked of the engine directly and through the gateway. Each check tells what it saw, or
 * throws; `NotThere` where this engine or model cannot show it.
 */
import assert from 'node:assert/strict';
import { descendants, eventually } from '../support/processes.ts';
import { hear } from '../support/streams.ts';
import { type Answer, ask, newKey, type Place, running, type Target, usageOf } from './place.ts';

/** Of a program that ended as SIGTERM asked. */
const TERMINATED = 128 + 15;
const LEFT_MS = 1_000;
const SETTLED_MS = 10_000;
const MANY = 64;
/** Characters. */
const STRUCK_AFTER = 500;

export class NotThere extends Error {}

export interface Check {
  what: string;
  /** Engines that it takes; it may end one of them. */
  replicas?: number;
  /** It asks a model that talks; those that embed or rank do not. */
  talks?: true;
  run(place: Place): Promise<string>;
}

const MESSAGES = [{ role: 'user', content: 'Name three lakes in Switzerland and say why each is known.' }];
const GREEDY = { temperature: 0 };

function targets({ gateway, replicas }: Place, key: string): { direct: Target; through: Target } {
  return { direct: { url: replicas[0]?.url ?? '' }, through: { url: gateway.url, key } };
}

/** What differs between two answers to the same question: ids, times, and what the node that was asked had in its cache. */
function masked(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(masked);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, inner]) =>
      /^(id|created|created_at|completed_at|system_fingerprint|prompt_tokens_details|input_tokens|input_tokens_details|.*_time|.*_id|.*cache.*)$/.test(
        key,
      )
        ? []
        : [[key, masked(inner)]],
    ),
  );
}

/** The same question to both: same status, same kind, and the same but for ids and times. */
async function same(place: Place, path: string, enginePaths: readonly string[], body: object): Promise<Answer> {
  const { key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  const answers = await Promise.all(enginePaths.map((enginePath) => ask(direct, enginePath, body)));
  const expected = answers.find(({ status }) => status !== 404 && status !== 501);
  if (expected === undefined) throw new NotThere(`the engine says ${answers[0]?.status}`);
  const got = await ask(through, path, body);
  assert.equal(got.status, expected.status, got.text.slice(0, 500));
  assert.equal(got.headers.get('content-type'), expected.headers.get('content-type'));
  assert.deepEqual(masked(JSON.parse(got.text)), masked(JSON.parse(expected.text)));
  assert.equal(Object.keys(JSON.parse(got.text)).join(), Object.keys(JSON.parse(expected.text)).join());
  return got;
}

/** @param root where engines have it at their root, some of them alone there, others under /v1 alone */
const unary = (what: string, path: string, body: (model: string) => object, root?: string): Check => ({
  what,
  run: async (place) => {
    const paths = root === undefined ? [path] : [root, path];
    const { status, text } = await same(place, path, paths, body(place.model));
    return `${status}, ${text.length} bytes, the same`;
  },
});

/** As the engine streams it: text, ends and the client's own usage; and on record what the engine counted. */
async function stream(place: Place, path: string, body: object): Promise<string> {
  const { id, key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  const withUsage = { ...body, stream_options: { include_usage: true } };
  const expected = hear((await ask(direct, path, { ...withUsage, stream: true })).text);
  const plain = hear((await ask(through, path, { ...body, stream: true })).text);
  const asked = hear((await ask(through, path, { ...withUsage, stream: true })).text);
  for (const heard of [plain, asked]) {
    assert.equal(heard.text, expected.text);
    assert.deepEqual(heard.finishes, expected.finishes);
    assert.deepEqual([heard.dones, heard.errors, heard.ids.size, heard.cut], [1, [], 1, false]);
  }
  assert.deepEqual(plain.usages, [], 'a client that did not ask for usage got it');
  assert.deepEqual(masked(asked.usages), masked(expected.usages));
  const [counted] = expected.usages;
  await recorded(place, id, { requests: 2, prompt: counted?.prompt_tokens, completion: counted?.completion_tokens });
  return `${expected.textChunks} chunks of text, the same; twice ${counted?.prompt_tokens} + ${counted?.completion_tokens} tokens on record`;
}

interface Expected {
  requests: number;
  /** Of each. */
  prompt: unknown;
  completion: unknown;
}

async function recorded({ gateway }: Place, keyId: string, { requests, prompt, completion }: Expected): Promise<void> {
  const total = await eventually('the usage on record', SETTLED_MS, async () => {
    const usage = await usageOf(gateway, keyId);
    return usage !== undefined && usage.requests >= requests ? usage : undefined;
  });
  assert.deepEqual(
    [total.requests, total.prompt_tokens, total.completion_tokens, total.estimated],
    [requests, requests * Number(prompt), requests * Number(completion), 0],
  );
}

/** Streams whose events have names: the last one must be there, and nothing after it. */
async function named(place: Place, path: string, body: object, last: RegExp): Promise<string> {
  const { id, key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  const events = (text: string) => [...text.matchAll(/^event: (\S+)/gm)].map(([, name]) => name ?? '');
  const expected = await ask(direct, path, { ...body, stream: true }).catch((error: Error) => {
    throw new NotThere(`the engine itself breaks it off: ${error.message}`);
  });
  if (expected.status === 404) throw new NotThere('the engine says 404');
  const got = await ask(through, path, { ...body, stream: true });
  assert.equal(got.status, expected.status, got.text.slice(0, 500));
  assert.match(events(got.text).at(-1) ?? '', last);
  // How many pieces the text comes in is the engine's affair each time.
  assert.deepEqual([...new Set(events(got.text))], [...new Set(events(expected.text))]);
  const usage = await eventually('the usage on record', SETTLED_MS, () => usageOf(place.gateway, id));
  const told = [...got.text.matchAll(/"(?:output_tokens)":\s*(\d+)/g)].map(([, count]) => Number(count)).at(-1);
  assert.equal(usage.completion_tokens, told);
  assert.equal(usage.estimated, 0);
  return `ends with ${events(got.text).at(-1)}; ${usage.prompt_tokens} + ${usage.completion_tokens} tokens on record`;
}

const LONG = { ...GREEDY, max_tokens: 4_000, ignore_eos: true };

/** A client that leaves: the engine is at work no more within a second, or as soon as when it is asked directly. */
async function leaving(place: Place, more: object): Promise<string> {
  const { key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  const alone = await letGo(place, direct, more);
  const ms = await letGo(place, through, more);
  assert.ok(ms <= Math.max(LEFT_MS, alone + LEFT_MS / 2), `let go after ${ms} ms; asked directly after ${alone} ms`);
  return `let go after ${ms.toFixed(0)} ms, asked directly after ${alone.toFixed(0)} ms, as its own metrics tell it`;
}

/** Milliseconds until the engine says of itself that it has nothing to do. */
async function letGo(place: Place, target: Target, more: object): Promise<number> {
  const total = async () =>
    (await Promise.all(place.replicas.map(({ url }) => running(url)))).reduce((sum, count) => sum + count, 0);
  await eventually('an idle engine', SETTLED_MS, async () => ((await total()) === 0 ? true : undefined));
  const control = new AbortController();
  const body = { model: place.model, messages: MESSAGES, ...LONG, ...more };
  const asked = ask(target, '/v1/chat/completions', body, { signal: control.signal }).then(
    () => 'ended',
    () => 'left',
  );
  await eventually('the engine at work', SETTLED_MS, async () => ((await total()) > 0 ? true : undefined));
  const leftAt = performance.now();
  control.abort();
  await eventually('idle again', SETTLED_MS, async () => ((await total()) === 0 ? true : undefined));
  assert.equal(await asked, 'left', 'it was over before the client left');
  return performance.now() - leftAt;
}

/** The node of a stream is killed in the middle of it: the other one goes on, and the client has one answer. */
async function resumed(place: Place, path: string, body: object): Promise<string> {
  const { key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  await place.gateway.serving(place.replicas.length, 300_000);
  const whole = hear((await ask(direct, path, { ...body, stream: true })).text);
  const before = await Promise.all(place.replicas.map(({ url }) => running(url)));
  assert.ok(before.every((count) => count === 0));
  let struck: Promise<void> | undefined;
  const strike = async () => {
    const busy = await Promise.all(place.replicas.map(({ url }) => running(url)));
    const victim = place.replicas[busy.findIndex((count) => count > 0)];
    assert.ok(victim !== undefined, 'no engine was at work');
    for (const pid of descendants(victim.agent.pid)) process.kill(pid, 'SIGKILL');
    place.replicas.splice(place.replicas.indexOf(victim), 1);
  };
  const answer = await ask(
    through,
    path,
    { ...body, stream: true },
    {
      headers: { 'x-otela-resume': '1' },
      onText: (text) => {
        if (struck === undefined && hear(text).text.length > STRUCK_AFTER) struck = strike();
      },
    },
  );
  await struck;
  const heard = hear(answer.text);
  assert.ok(struck !== undefined, 'it was over before it could be struck');
  assert.deepEqual(
    [heard.errors, heard.dones, heard.ids.size, heard.roles <= 1],
    [[], 1, 1, true],
    answer.text.slice(-500),
  );
  const agree = commonPrefix(heard.text, whole.text) / whole.text.length;
  const said = heard.comments.find((comment) => comment.includes('continued')) ?? 'nothing said';
  assert.match(said, /continued/);
  return `one id, one [DONE]; ${heard.text.length} characters, ${(agree * 100).toFixed(0)} % of them as without the break; ": ${said}"`;
}

function commonPrefix(a: string, b: string): number {
  let n = 0;
  while (n < a.length && a[n] === b[n]) n++;
  return n;
}

/** Tokens per second of many streams at once, direct and through it. */
async function crowd(place: Place): Promise<string> {
  const { key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  const body = { model: place.model, messages: MESSAGES, temperature: 1, max_tokens: 256, ignore_eos: true };
  const rate = async (target: Target) => {
    const started = performance.now();
    const answers = await Promise.all(
      Array.from({ length: MANY }, () => ask(target, '/v1/chat/completions', { ...body, stream: true })),
    );
    for (const { status, text } of answers) assert.deepEqual([status, hear(text).dones], [200, 1], text.slice(0, 300));
    return (MANY * body.max_tokens) / ((performance.now() - started) / 1_000);
  };
  const rates: [number, number][] = [];
  for (let n = 0; n < 4; n++) rates.push([await rate(direct), await rate(through)]);
  // The first pair warms up.
  const [one = 0, two = 0] = [0, 1].map((side) => median(rates.slice(1).map((pair) => pair[side] ?? 0)));
  return `${one.toFixed(0)} tokens/s direct, ${two.toFixed(0)} through it: ${(two / one).toFixed(2)} (median of 3 pairs)`;
}

function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

/** A lone request's way, direct and through it by turns. */
async function added(place: Place): Promise<string> {
  const { key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  const body = { model: place.model, messages: MESSAGES, ...GREEDY, max_tokens: 8, stream: true };
  const first: Record<'direct' | 'through', number[]> = { direct: [], through: [] };
  for (let n = 0; n < 60; n++) {
    const d = await ask(direct, '/v1/chat/completions', body);
    const t = await ask(through, '/v1/chat/completions', body);
    if (n < 10) continue;
    first.direct.push(d.firstMs);
    first.through.push(t.firstMs);
  }
  const [d, t] = [median(first.direct), median(first.through)];
  return `first token after ${d.toFixed(2)} ms direct, ${t.toFixed(2)} through it: ${(t - d).toFixed(2)} ms (median of 50)`;
}

async function drained(place: Place): Promise<string> {
  const { key } = await newKey(place.gateway);
  const { through } = targets(place, key);
  const [replica] = place.replicas;
  assert.ok(replica !== undefined);
  let told = false;
  const answer = await ask(
    through,
    '/v1/chat/completions',
    { model: place.model, messages: MESSAGES, ...GREEDY, max_tokens: 1_500, ignore_eos: true, stream: true },
    {
      onText: () => {
        if (!told) for (const { agent } of place.replicas) agent.signal('SIGTERM');
        told = true;
      },
    },
  );
  const heard = hear(answer.text);
  assert.deepEqual([heard.dones, heard.errors, heard.finishes], [1, [], ['length']]);
  const { code } = await replica.agent.end(60_000);
  assert.equal(code, TERMINATED);
  await assert.rejects(fetch(`${replica.url}/v1/models`), 'the engine still answers');
  return `the stream that ran came to its end, the agent ended with ${code}, the engine answers no more`;
}

async function hardware({ gateway, servingAfterMs, replicas }: Place): Promise<string> {
  const nodes = await gateway.nodes();
  assert.equal(nodes.length, replicas.length);
  const [node] = nodes;
  assert.ok(node !== undefined && node.models.length > 0);
  return `${replicas.length} serving after ${(servingAfterMs / 1_000).toFixed(0)} s: ${JSON.stringify({ models: node.models, hardware: node.hardware })}`;
}

const chat = (model: string, more: object = {}) => ({ model, messages: MESSAGES, ...GREEDY, max_tokens: 48, ...more });
const text = (model: string, more: object = {}) => ({
  model,
  prompt: 'The three lakes are',
  ...GREEDY,
  max_tokens: 48,
  ...more,
});

/** In this order: the last ones end engines. */
export const CHECKS: readonly Check[] = [
  { what: 'the node, as the registry has it', run: hardware },
  unary('chat', '/v1/chat/completions', (model) => chat(model)),
  unary('chat with log probabilities', '/v1/chat/completions', (model) =>
    chat(model, { logprobs: true, top_logprobs: 2 }),
  ),
  unary('chat, two choices', '/v1/chat/completions', (model) => chat(model, { n: 2 })),
  unary('completions', '/v1/completions', (model) => text(model)),
  unary('responses', '/v1/responses', (model) => ({
    model,
    input: 'Say something.',
    ...GREEDY,
    max_output_tokens: 32,
  })),
  unary('messages', '/v1/messages', (model) => chat(model)),
  unary('tokenize', '/v1/tokenize', (model) => ({ model, messages: MESSAGES }), '/tokenize'),
  unary('detokenize', '/v1/detokenize', (model) => ({ model, tokens: [20, 21, 22, 300] }), '/detokenize'),
  unary('embeddings', '/v1/embeddings', (model) => ({ model, input: ['a lake', 'a mountain'] })),
  unary('rerank', '/v1/rerank', (model) => ({ model, query: 'lake', documents: ['a lake', 'a hill'] }), '/rerank'),
  unary('score', '/v1/score', (model) => ({ model, text_1: 'lake', text_2: ['a lake', 'a hill'] }), '/score'),
  unary('classify', '/v1/classify', (model) => ({ model, input: 'a lake' }), '/classify'),
  unary('an error of the engine’s', '/v1/chat/completions', (model) => chat(model, { max_tokens: -1 })),
  unary('a prompt that is too long', '/v1/completions', (model) => text(model, { prompt: 'lake '.repeat(100_000) })),
  unary('structured output', '/v1/chat/completions', (model) =>
    chat(model, {
      response_format: {
        type: 'json_schema',
        json_schema: {
          name: 'yes',
          schema: { type: 'object', properties: { yes: { type: 'boolean' } }, required: ['yes'] },
        },
      },
    }),
  ),
  { what: 'chat, streamed', talks: true, run: (place) => stream(place, '/v1/chat/completions', chat(place.model)) },
  { what: 'completions, streamed', talks: true, run: (place) => stream(place, '/v1/completions', text(place.model)) },
  {
    what: 'responses, streamed',
    talks: true,
    run: (place) =>
      named(
        place,
        '/v1/responses',
        { model: place.model, input: 'Say.', ...GREEDY, max_output_tokens: 32 },
        /^response\.(completed|incomplete)$/,
      ),
  },
  {
    what: 'messages, streamed',
    talks: true,
    run: (place) => named(place, '/v1/messages', chat(place.model), /^message_stop$/),
  },
  { what: 'a client leaves a stream', talks: true, run: (place) => leaving(place, { stream: true }) },
  { what: 'a client leaves a unary answer', talks: true, run: (place) => leaving(place, {}) },
  { what: 'added to the first token', talks: true, run: added },
  { what: `${MANY} streams at once`, talks: true, run: crowd },
  {
    what: 'chat goes on when its node is lost',
    talks: true,
    replicas: 2,
    run: (place) => resumed(place, '/v1/chat/completions', chat(place.model, { max_tokens: 1_000, ignore_eos: true })),
  },
  {
    what: 'completions go on when their node is lost',
    talks: true,
    replicas: 2,
    run: (place) => resumed(place, '/v1/completions', text(place.model, { max_tokens: 1_000, ignore_eos: true })),
  },
  { what: 'drain', talks: true, run: drained },
];

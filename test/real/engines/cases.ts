/** The cases that every real engine passes through agent and gateway, each compared with the engine asked directly. */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { readLoad } from '../../../agent/engine/engine-load.ts';
import { eventually } from '../../support/processes.ts';
import { hear } from '../../support/streams.ts';
import { NotThere, same } from '../answers.ts';
import { type Answer, ask, newKey, targets, usageOf } from '../place.ts';
import { chat, TOOL } from '../questions.ts';
import { leaving } from './client-leaves.ts';
import { type EnginePlace, FACTS_MS, killEngine, registered, restartEngine } from './engine-place.ts';

const SETTLED_MS = 10_000;
/** Time in which a client learns that its engine has ended. */
export const LOST_MS = 15_000;

/** `own`: the status with which the engine itself refuses the request, also when it is asked directly. */
export type Outcome = { kind: 'ok'; note: string } | { kind: 'own'; status: number; note: string };

export interface Case {
  name: string;
  run(place: EnginePlace): Promise<Outcome>;
}

export const ok = (note: string): Outcome => ({ kind: 'ok', note });

/** The first line of an engine's own error. */
export function refusal({ status, text }: Pick<Answer, 'status' | 'text'>): Outcome {
  return { kind: 'own', status, note: text.replace(/\s+/g, ' ').slice(0, 200) };
}

const CHAT = '/v1/chat/completions';

const unary = (name: string, path: string, body: (place: EnginePlace) => object): Case => ({
  name,
  run: async (place) => {
    const answer = await same(place, path, [path], body(place));
    return answer.status >= 400 ? refusal(answer) : ok(`${answer.text.length} bytes, as asked directly`);
  },
});

/** For requests that every engine should refuse: the engine's own words arrive. */
const refused = (name: string, body: (place: EnginePlace) => object): Case => ({
  name,
  run: async (place) => {
    const answer = await same(place, CHAT, [CHAT], body(place));
    return ok(`${answer.status} as asked directly: ${answer.text.replace(/\s+/g, ' ').slice(0, 160)}`);
  },
});

const listSchema = z.object({ data: z.array(z.looseObject({ id: z.string() })) });

async function models(place: EnginePlace): Promise<Outcome> {
  const { key } = await newKey(place.gateway);
  const headers = { authorization: `Bearer ${key}` };
  const own = listSchema.parse(await (await fetch(`${place.replicas[0]?.url}/v1/models`)).json());
  const { data } = listSchema.parse(await (await fetch(`${place.gateway.url}/v1/models`, { headers })).json());
  assert.deepEqual(data.map(({ id }) => id).sort(), own.data.map(({ id }) => id).sort());
  const model = data.find(({ id }) => id === place.model);
  return ok(JSON.stringify(model));
}

async function stream(place: EnginePlace): Promise<Outcome> {
  const { key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  const body = chat(place.model, { stream: true });
  const expected = await ask(direct, CHAT, body);
  const got = await ask(through, CHAT, body);
  assert.equal(got.status, expected.status, got.text.slice(0, 500));
  const [one, two] = [hear(expected.text), hear(got.text)];
  assert.deepEqual([two.text, two.finishes, two.errors], [one.text, one.finishes, one.errors]);
  assert.deepEqual([two.dones, two.ids.size, two.usages.length], [one.dones, one.ids.size, one.usages.length]);
  assert.equal(two.cut, false);
  return ok(`${two.textChunks} events with text, as asked directly; ${two.dones} [DONE]`);
}

const usageSchema = z.object({
  usage: z.object({
    prompt_tokens: z.number(),
    completion_tokens: z.number(),
    prompt_tokens_details: z.object({ cached_tokens: z.number().catch(0) }).nullish(),
  }),
});

/** The gateway's record of one request, when it is complete. */
async function recordOf({ gateway }: EnginePlace, keyId: string) {
  return await eventually('the usage on record', SETTLED_MS, () => usageOf(gateway, keyId));
}

/** Two responses, one of them streamed, to a client that asks for no usage: the records have the engine's counts. */
async function usage(place: EnginePlace): Promise<Outcome> {
  const told: string[] = [];
  let counted: z.infer<typeof usageSchema>['usage'] | undefined;
  for (const more of [{}, { stream: true }]) {
    const { id, key } = await newKey(place.gateway);
    const { text, status } = await ask(targets(place, key).through, CHAT, chat(place.model, more));
    assert.equal(status, 200, text.slice(0, 500));
    counted ??= usageSchema.parse(JSON.parse(text)).usage;
    const { prompt_tokens, completion_tokens, estimated } = await recordOf(place, id);
    assert.deepEqual(
      { prompt_tokens, completion_tokens, estimated },
      { ...pick(counted), estimated: 0 },
      `record of ${JSON.stringify(more)}`,
    );
    told.push(`${prompt_tokens} + ${completion_tokens}`);
  }
  return ok(`on record ${told.join(', streamed ')}`);
}

const pick = ({ prompt_tokens, completion_tokens }: z.infer<typeof usageSchema>['usage']) => ({
  prompt_tokens,
  completion_tokens,
});

/** The gateway's record of one request equals what the engine counted itself, without reading its responses. */
async function ownCounts(place: EnginePlace): Promise<Outcome> {
  const { engine } = place;
  if (engine.ownCounts === undefined) throw new NotThere('it has neither counters nor a tokenizer');
  const { id, key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  // A prompt that no other case sends, so that no cache shortens it.
  const content = `Count these words at ${Date.now()}: one two three four five six seven.`;
  const body = { ...chat(place.model), messages: [{ role: 'user', content }] };
  const before = engine.countsGrow ? await engine.ownCounts(direct.url, body) : { prompt: 0, completion: 0 };
  const { status, text } = await ask(through, CHAT, body);
  assert.equal(status, 200, text.slice(0, 300));
  const { prompt_tokens, completion_tokens } = await recordOf(place, id);
  // Prompts share the first tokens of the template, so that some of them are in the cache.
  const { prompt_tokens_details } = usageSchema.parse(JSON.parse(text)).usage;
  const cached = engine.countsWithoutCached ? (prompt_tokens_details?.cached_tokens ?? 0) : 0;
  const own = await eventually('its own counts', SETTLED_MS, async () => {
    const after = await engine.ownCounts?.(direct.url, body);
    if (after === undefined || after.completion === before.completion) return undefined;
    return { prompt: after.prompt - before.prompt, completion: after.completion - before.completion };
  });
  assert.deepEqual({ prompt: prompt_tokens - cached, completion: completion_tokens }, own);
  return ok(`${own.prompt} + ${own.completion} by both, and ${cached} from the cache`);
}

async function facts(place: EnginePlace): Promise<Outcome> {
  const wanted = place.engine.facts;
  let last: Record<string, unknown> | undefined;
  for (const until = Date.now() + FACTS_MS; Date.now() < until; await delay(1_000)) {
    last = await registered(place);
    if (isDeepStrictEqual({ ...last, ...wanted }, last)) return ok(JSON.stringify(last));
  }
  throw new Error(`of ${JSON.stringify(wanted)} the agent found ${JSON.stringify(last)}`);
}

/** The numbers of the agent's own page while one request runs. */
async function metrics(place: EnginePlace): Promise<Outcome> {
  const { key } = await newKey(place.gateway);
  const { through, direct } = targets(place, key);
  const control = new AbortController();
  const body = chat(place.model, { stream: true, max_tokens: 4_000, ...place.engine.long });
  const asked = ask(through, CHAT, body, { signal: control.signal }).catch(() => undefined);
  try {
    const page = await eventually('one running request on the page', SETTLED_MS, async () => {
      const text = await place.agentMetrics();
      return /^otela_agent_engine_requests\{state="running"\} 1$/m.test(text) ? text : undefined;
    });
    if (!place.engine.reportsLoad) throw new NotThere('it does not report its load; the agent counts its own requests');
    const load = await eventually('one running request in its metrics', SETTLED_MS, async () => {
      const found = readLoad(await (await fetch(`${direct.url}/metrics`)).text());
      return found?.running === 1 ? found : undefined;
    });
    const kv = /^otela_agent_engine_kv_use_ratio .*$/m.exec(page)?.[0] ?? 'no share of its cache';
    return ok(`${JSON.stringify(load)}; ${kv}`);
  } finally {
    control.abort();
    await asked;
  }
}

/** The engine is killed while a response streams: its client learns it soon, and the next request gets an error. */
async function stopped(place: EnginePlace): Promise<Outcome> {
  const { key } = await newKey(place.gateway);
  const { through } = targets(place, key);
  const body = chat(place.model, { stream: true, max_tokens: 4_000, ...place.engine.long });
  let killedAt: number | undefined;
  let killed: Promise<void> | undefined;
  const answer = await ask(through, CHAT, body, {
    onText: (text) => {
      if (killed !== undefined || hear(text).textChunks < 3) return;
      killedAt = performance.now();
      killed = killEngine(place);
    },
  });
  await killed;
  assert.ok(killedAt !== undefined, 'it was over before the engine was killed');
  const heard = hear(answer.text);
  const ms = performance.now() - killedAt;
  assert.deepEqual([heard.errors.length, heard.dones], [1, 0], answer.text.slice(-500));
  assert.ok(ms < LOST_MS, `told after ${ms} ms`);
  const next = await ask(through, CHAT, chat(place.model));
  assert.ok([502, 503].includes(next.status), `${next.status} ${next.text.slice(0, 300)}`);
  assert.ok(JSON.parse(next.text).error.message.length > 0);
  return ok(`told after ${ms.toFixed(0)} ms; the next request got ${next.status}`);
}

async function restarted(place: EnginePlace): Promise<Outcome> {
  const { key } = await newKey(place.gateway);
  const { through } = targets(place, key);
  if (place.process.running) await killEngine(place);
  const started = performance.now();
  await restartEngine(place);
  const ready = performance.now();
  await eventually('an answer through the same agent', LOST_MS, async () => {
    const { status, text } = await ask(through, CHAT, chat(place.model));
    if (status !== 200) throw new Error(`${status} ${text.slice(0, 300)}`);
    return true;
  });
  const [own, more] = [ready - started, performance.now() - ready].map((ms) => (ms / 1_000).toFixed(1));
  return ok(`the engine took ${own} s, the next answer came ${more} s later`);
}

/** In this order, because the last ones end the engine. */
export const CASES: readonly Case[] = [
  { name: 'models', run: models },
  unary('chat', CHAT, ({ model }) => chat(model)),
  { name: 'chat, streamed', run: stream },
  { name: 'a client disconnects from a stream', run: async (place) => ok(await leaving(place)) },
  { name: 'usage on record', run: usage },
  unary('a tool’s call', CHAT, ({ model }) => chat(model, { ...TOOL, max_tokens: 200 })),
  unary('log probabilities', CHAT, ({ model }) => chat(model, { logprobs: true, top_logprobs: 2 })),
  unary('embeddings', '/v1/embeddings', ({ model }) => ({ model, input: ['a lake', 'a mountain'] })),
  refused('a wrong parameter', ({ model }) => chat(model, { temperature: 'warm' })),
  refused('a prompt that is too long', ({ model, engine }) => ({
    ...chat(model),
    messages: [{ role: 'user', content: 'lake '.repeat(2 * engine.context) }],
  })),
  { name: 'facts from only the URL', run: facts },
  { name: 'load from /metrics', run: metrics },
  { name: 'counts equal the engine’s', run: ownCounts },
  { name: 'the engine is killed during a stream', run: stopped },
  { name: 'the engine starts again', run: restarted },
];

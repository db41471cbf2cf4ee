/**
 * The same request to the engine and to the gateway: the responses are equal, and the record has the engine's counts.
 */
import assert from 'node:assert/strict';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { eventually } from '../support/processes.ts';
import { hear } from '../support/streams.ts';
import { type Answer, ask, newKey, type Place, targets, usageOf } from './place.ts';

const SETTLED_MS = 10_000;

/** This engine or model cannot show it. */
export class NotThere extends Error {}

/** Members that differ between two responses to the same request: ids, times, and cache counts of the node. */
const DIFFERS =
  /^(?:id|timings|created|created_at|completed_at|system_fingerprint|(?:prompt|input)_tokens_details|input_tokens|.*_time|.*_id|.*cache.*)$/;

function masked(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(masked);
  if (typeof value !== 'object' || value === null) return value;
  const same = Object.entries(value).filter(([key]) => !DIFFERS.test(key));
  return Object.fromEntries(same.map(([key, inner]) => [key, masked(inner)]));
}

/** The same request to both: same status, same content type, and the same content except for ids and times. */
export async function same(place: Place, path: string, enginePaths: readonly string[], body: object): Promise<Answer> {
  const { key } = await newKey(place.gateway);
  const { direct, through } = targets(place, key);
  const answers = await Promise.all(enginePaths.map((enginePath) => ask(direct, enginePath, body)));
  const expected = answers.find(({ status }) => status !== 404 && status !== 501);
  if (expected === undefined) throw new NotThere(`the engine says ${answers[0]?.status}`);
  const got = await ask(through, path, body);
  assert.equal(got.status, expected.status, got.text.slice(0, 500));
  assert.equal(got.headers.get('content-type'), expected.headers.get('content-type'));
  const [one, two] = [tryParseJson(expected.text), tryParseJson(got.text)];
  if (one === undefined || two === undefined) {
    assert.equal(got.text, expected.text);
    return got;
  }
  assert.deepEqual(masked(two), masked(one));
  assert.equal(Object.keys(Object(two)).join(), Object.keys(Object(one)).join());
  return got;
}

/** Streamed as by the engine: text, ends and the client's own usage; and the record has the engine's counts. */
export async function stream(place: Place, path: string, body: object): Promise<string> {
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
  /** Tokens of each request. */
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

/** Streams with named events: the last one must be there, and nothing after it. */
export async function named(place: Place, path: string, body: object, last: RegExp): Promise<string> {
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
  // The number of pieces of the text may differ each time.
  assert.deepEqual([...new Set(events(got.text))], [...new Set(events(expected.text))]);
  const usage = await eventually('the usage on record', SETTLED_MS, () => usageOf(place.gateway, id));
  const told = [...got.text.matchAll(/"(?:output_tokens)":\s*(\d+)/g)].map(([, count]) => Number(count)).at(-1);
  assert.equal(usage.completion_tokens, told);
  assert.equal(usage.estimated, 0);
  return `ends with ${events(got.text).at(-1)}; ${usage.prompt_tokens} + ${usage.completion_tokens} tokens on record`;
}

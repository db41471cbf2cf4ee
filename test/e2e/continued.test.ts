/**
 * Streams that another engine continues after their engine dies in the middle of a sentence, and streams that must not
 * be continued.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { text as wordsOf } from '../support/engine/words.ts';
import type { Behaviour } from '../support/engine.ts';
import { endAll, eventually } from '../support/processes.ts';
import { hear } from '../support/streams.ts';
import { type Bench, openTunnelBench, type TunnelBench } from '../support/tunnel/tunnel-bench.ts';

const MODEL = 'stand-in/goes-on';
const TOKENS = 40;
/** Engines send this many tokens and wait for the test to break them, so no test depends on speed. */
const SAID = 8;
const PAUSED: Behaviour = { pauseAfter: SAID };

let shop: TunnelBench;
const benches: Bench[] = [];
beforeAll(async () => {
  shop = await openTunnelBench();
  for (const id of ['a', 'b', 'c'])
    benches.push(await shop.addNode({ models: [MODEL], behaviour: { tokens: TOKENS, id } }));
  await shop.refreshed();
});
afterAll(endAll);

const CHAT = { model: MODEL, stream: true, messages: [{ role: 'user', content: 'Say something.' }] };
const COMPLETION = { model: MODEL, stream: true, prompt: 'Say something: ', max_tokens: 1000 };
const KINDS = { 'chat/completions': CHAT, completions: COMPLETION } as const;
type Kind = keyof typeof KINDS;

const carrier = () => benches.find(({ engine }) => engine.running() > 0);
const others = (bench: Bench | undefined) => benches.filter((one) => one !== bench);

/**
 * Asks for a stream and calls each of `breaks` with its current carrier, each at a token that only the next engine can
 * have sent, whatever was still in transit from the previous ones.
 */
async function told(
  kind: Kind,
  more: object,
  breaks: ((carrier: Bench | undefined) => unknown)[],
  headers: Record<string, string> = { 'x-otela-resume': '1' },
): Promise<string> {
  for (const { engine } of benches) engine.control(PAUSED);
  const response = await shop.ask(`/v1/${kind}`, { ...KINDS[kind], ...more }, { headers });
  expect(response.status, await (response.ok ? '' : response.clone().text())).toBe(200);
  let all = '';
  let next = 5;
  const decoder = new TextDecoder();
  for await (const piece of response.body ?? []) {
    all += decoder.decode(piece, { stream: true });
    if (breaks.length === 0 || hear(all).textChunks < next) continue;
    const bench = carrier();
    if (breaks.length === 1) for (const { engine } of others(bench)) engine.control({});
    await breaks.shift()?.(bench);
    next += SAID;
  }
  expect(breaks).toEqual([]);
  return all;
}

const stored = async () => (await Promise.all(benches.map((bench) => shop.usage(bench)))).flat();

/**
 * Waits until both parts of the stream with a prompt of `words` words are stored, and returns the request's records by
 * attempt. On a slow machine a node may not acknowledge an attempt in time; such an attempt has a number and no record.
 */
function recordsOf(words: number) {
  const tokens = ('word '.length / 4) * words; // the mock engine counts a token for four characters
  return eventually('the records of both parts', 10_000, async () => {
    const all = await stored();
    const end = all.find(({ complete, prompt }) => complete && prompt >= tokens && prompt < tokens + 100);
    const records = all.filter(({ requestId }) => requestId === end?.requestId);
    if (!records.some(({ complete }) => !complete)) throw new Error(JSON.stringify(all));
    return records.sort((a, b) => a.attempt - b.attempt);
  });
}

/**
 * Breaks an engine's connections, and waits until its stream has ended. Otherwise the test would take this engine for
 * the next carrier.
 */
async function hangUp(bench: Bench | undefined): Promise<void> {
  bench?.engine.hangUp();
  await eventually('the engine is alone', 5_000, () => (bench?.engine.running() ? undefined : true));
}

const kinds = Object.keys(KINDS).filter((kind): kind is Kind => kind in KINDS);

describe.each(kinds)('%s: when the engine dies in mid-stream', (kind) => {
  it('another one goes on: one text, one id, one end, and a comment that tells', async () => {
    let first: Bench | undefined;
    const options = { stream_options: { include_usage: true } };
    const all = await told(kind, options, [
      (bench) => {
        first = bench;
        return hangUp(bench);
      },
    ]);
    const heard = hear(all);
    expect(heard).toMatchObject({ text: wordsOf(TOKENS), dones: 1, finishes: ['stop'], errors: [], cut: false });
    expect(heard.ids.size).toBe(1);
    expect(heard.roles).toBe(kind === 'completions' ? 0 : 1);
    expect(heard.usages).toHaveLength(1);
    const [usage] = heard.usages;
    expect(usage).toMatchObject({ completion_tokens: TOKENS, otela_estimated: true });
    expect(usage?.total_tokens).toBe(TOKENS + Number(usage?.prompt_tokens));
    const comments = heard.comments.filter((comment) => comment.startsWith('otela'));
    // On a slow machine a node may not acknowledge an attempt in time, which then goes elsewhere.
    expect(comments).toEqual([expect.stringMatching(/^otela continued node=[a-z2-7]{26} attempts=[2-4]$/)]);
    const second = benches.find(({ session }) => comments[0]?.includes(session));
    expect(second).toBeDefined();
    expect(second).not.toBe(first);
  });

  // The prompts of these two tests are recognized by their length, because records of previous tests may still arrive.
  const asked = (words: number) => {
    const content = 'word '.repeat(words);
    return kind === 'completions' ? { prompt: content } : { messages: [{ role: 'user', content }] };
  };
  const wordsOfKind = 100 * (1 + 2 * kinds.indexOf(kind));

  it('what both engines gave is counted once each', async () => {
    const heard = hear(await told(kind, asked(wordsOfKind), [hangUp]));
    expect(heard.dones).toBe(1);
    const [one, two, ...more] = await recordsOf(wordsOfKind);
    expect(one).toMatchObject({ complete: false, estimated: true });
    expect(two).toMatchObject({ complete: true, estimated: false });
    expect(more).toEqual([]);
    const given = Number(one?.completion) + Number(two?.completion);
    expect(given).toBeGreaterThanOrEqual(TOKENS);
    expect(given).toBeLessThan(TOKENS + 10); // tokens that were lost in transit were generated too
  });

  it('a node that does not acknowledge the rest in time has no record, and the stream goes on at the third', async () => {
    const words = wordsOfKind + 100;
    const breaks = async (bench: Bench | undefined) => {
      for (const { path } of others(bench)) path.hold();
      await hangUp(bench);
      const releaseAll = () => {
        for (const { path } of others(bench)) path.release();
      };
      const suspicion = eventually('a suspicion', 10_000, async () => (await shop.suspected())[0]);
      neverRejects(suspicion.finally(releaseAll));
    };
    const heard = hear(await told(kind, asked(words), [breaks]));
    expect(heard).toMatchObject({ text: wordsOf(TOKENS), dones: 1, errors: [] });
    const records = await recordsOf(words);
    expect(records).toMatchObject([
      { attempt: 1, complete: false },
      { attempt: 3, complete: true },
    ]);
  });

  it('a client that did not ask for usage gets none', async () => {
    expect(hear(await told(kind, {}, [hangUp]))).toMatchObject({ text: wordsOf(TOKENS), usages: [], dones: 1 });
  });

  it('there are never more tokens than were asked for', async () => {
    const heard = hear(await told(kind, { max_tokens: 23 }, [hangUp]));
    expect(heard).toMatchObject({ text: wordsOf(23), finishes: ['length'], dones: 1 });
  });

  it('and the next one too: the third goes on', async () => {
    const all = await told(kind, {}, [hangUp, hangUp]);
    const heard = hear(all);
    expect(heard).toMatchObject({ text: wordsOf(TOKENS), dones: 1, errors: [] });
    expect(heard.ids.size).toBe(1);
    expect(heard.comments.filter((comment) => comment.startsWith('otela continued'))).toHaveLength(2);
  });
});

describe('nobody is left', () => {
  it.concurrent('when the third engine dies too: the client is told, and gets no [DONE]', async () => {
    const heard = hear(await told('completions', {}, [hangUp, hangUp, hangUp]));
    expect(wordsOf(TOKENS).startsWith(heard.text)).toBe(true);
    expect(heard).toMatchObject({ dones: 0, finishes: [] });
    expect(heard.errors).toEqual([expect.objectContaining({ code: 'upstream_error' })]);
  });

  it.concurrent('but nodes of another revision or quantisation', async () => {
    const model = 'stand-in/two-revisions';
    const slow = { models: [model], behaviour: PAUSED };
    const pair = [await shop.addNode(slow)];
    const asking = shop.ask('/v1/completions', { ...COMPLETION, model }, { headers: { 'x-otela-resume': '1' } });
    const response = await asking;
    pair.push(await shop.addNode(slow, {}, { quantization: 'fp8' }));
    await shop.refreshed();
    pair[0]?.engine.hangUp();
    const heard = hear(await response.text());
    expect(heard).toMatchObject({ dones: 0, errors: [{ code: 'upstream_error' }] });
    expect(pair[1]?.engine.requests).toHaveLength(0);
    await Promise.all(pair.map((bench) => bench.close()));
  });
});

describe('who wants it', () => {
  it('nobody goes on where nobody asked for it', async () => {
    const heard = hear(await told('completions', {}, [hangUp], {}));
    expect(heard).toMatchObject({ dones: 0, errors: [{ code: 'upstream_error' }] });
    expect(JSON.stringify(heard.errors)).not.toContain('continued');
  });

  it('a key may want it for all its streams, and a request not', async () => {
    const { key } = Object(await shop.admin('POST', 'keys', { name: 'goes on', resume: true }));
    const authorization = `Bearer ${key}`;
    expect(hear(await told('completions', {}, [hangUp], { authorization }))).toMatchObject({
      text: wordsOf(TOKENS),
      dones: 1,
    });
    const refusing = { authorization, 'x-otela-resume': '0' };
    expect(hear(await told('completions', {}, [hangUp], refusing))).toMatchObject({ dones: 0, errors: [{}] });
  });
});

it.each(kinds)('%s: a stream that was asked for by another name goes on under it', async (kind) => {
  await shop.admin('PUT', `models/${MODEL}`, { aliases: ['any/name'] });
  await shop.refreshed();
  const heard = hear(await told(kind, { model: 'any/name', stream_options: { include_usage: true } }, [hangUp]));
  expect(heard).toMatchObject({ text: wordsOf(TOKENS), dones: 1, errors: [] });
  expect(heard.usages).toHaveLength(1);
});

describe('it is never tried', () => {
  it.each<[string, Kind, object]>([
    ['tools', 'chat/completions', { tools: [{ type: 'function', function: { name: 'f' } }], tool_choice: 'none' }],
    ['logprobs', 'completions', { logprobs: 1 }],
    ['n', 'chat/completions', { n: 2 }],
    ['response_format', 'chat/completions', { response_format: { type: 'json_object' } }],
    ['reasoning_effort', 'chat/completions', { reasoning_effort: 'low' }],
    ['stop', 'completions', { stop: ['END'] }],
    ['seed', 'completions', { seed: 7 }],
    ['presence_penalty', 'completions', { presence_penalty: 1 }],
    ['echo', 'completions', { echo: true }],
  ])('with %s: the client is told, and gets no [DONE]', async (why, kind, more) => {
    const asked = benches.map(({ engine }) => engine.requests.length);
    const heard = hear(await told(kind, more, [hangUp]));
    expect(heard).toMatchObject({ dones: 0, finishes: [], errors: [{ code: 'upstream_error' }] });
    expect(JSON.stringify(heard.errors)).toContain(`'${why}'`);
    const now = benches.reduce((sum, { engine }, n) => sum + engine.requests.length - (asked[n] ?? 0), 0);
    expect(now).toBe(1);
  });

  it.each([
    ['responses', { model: MODEL, stream: true, input: 'Say something.' }, 'error'],
    ['messages', { model: MODEL, stream: true, max_tokens: 100, messages: CHAT.messages }, 'event: error'],
  ])('of /v1/%s', async (path, body, error) => {
    for (const { engine } of benches) engine.control(PAUSED);
    const headers = { 'x-otela-resume': '1' };
    const response = await shop.ask(`/v1/${path}`, body, { headers });
    let all = '';
    let broken = false;
    const decoder = new TextDecoder();
    for await (const piece of response.body ?? []) {
      all += decoder.decode(piece, { stream: true });
      if (!broken && all.includes(' stand-in')) {
        neverRejects(hangUp(carrier()));
        broken = true;
      }
    }
    expect(all).toContain(error);
    expect(all).toContain(`/v1/${path} cannot be`);
    expect(all).not.toContain('continued node');
  });
});

describe('engines that cannot be trusted with the rest', () => {
  const making = (behaviour: Behaviour, count: number) => (bench: Bench | undefined) => {
    for (const other of others(bench).slice(0, count)) other.engine.control({ ...behaviour, id: 'odd' });
    neverRejects(hangUp(bench));
  };

  it.each<[string, Behaviour, string]>([
    ['have no tokenizer', { tokenizer: 'none' }, 'how it tokenizes'],
    ['say garbage instead of tokens', { tokenizer: 'garbage' }, 'how it tokenizes'],
    ['say no object at all', { tokenizer: 'text' }, 'how it tokenizes'],
    ['find no tokens', { tokenizer: 'empty' }, 'template'],
    ['render the partial answer behind an empty thought', { template: 'thinks' }, 'template'],
    ['refuse', { status: 400 }, 'how it tokenizes'],
  ])('all the others %s: the client is told why', async (_what, behaviour, why) => {
    const heard = hear(await told('chat/completions', {}, [making(behaviour, 2)]));
    expect(heard).toMatchObject({ dones: 0, finishes: [], errors: [{ code: 'upstream_error' }] });
    expect(JSON.stringify(heard.errors)).toContain(why);
    expect(heard.comments.join()).not.toContain('continued');
  });

  it.each<[string, Kind, Behaviour]>([
    ['says garbage instead of tokens', 'chat/completions', { tokenizer: 'garbage' }],
    ['renders in its own way', 'chat/completions', { template: 'thinks' }],
    ['has another model', 'chat/completions', { claims: 'stand-in/other' }],
    ['streams garbage', 'completions', { fault: 'garbage-events' }],
    ['speaks no HTTP', 'completions', { fault: 'garbage' }],
    ['refuses', 'completions', { status: 400 }],
    ['is out of order', 'chat/completions', { status: 503 }],
    ['breaks off at once', 'completions', { fault: 'close', afterTokens: 1 }],
  ])('one of the others %s: the third goes on', async (_what, kind, behaviour) => {
    const heard = hear(await told(kind, {}, [making(behaviour, 1)]));
    expect(heard).toMatchObject({ text: wordsOf(TOKENS), dones: 1, errors: [], finishes: ['stop'], cut: false });
    expect(heard.ids.size).toBe(1);
  });

  it('completions go on without a tokenizer: tokens are counted by events', async () => {
    const heard = hear(await told('completions', { max_tokens: 23 }, [making({ tokenizer: 'garbage' }, 2)]));
    expect(heard).toMatchObject({ text: wordsOf(23), dones: 1 });
  });
});

it('none of it was an error inside the gateway', () => {
  expect(shop.logs()).toEqual([]);
});

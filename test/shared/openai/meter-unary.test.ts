import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Endpoint } from '../../../shared/openai/endpoints.ts';
import type { UsageMeterOptions } from '../../../shared/openai/token-usage.ts';
import { createUsageMeter } from '../../../shared/openai/usage-meter.ts';
import { at, chat, counts } from './metered.ts';
import { bytes, cut, cuts, gaps, space, text, write } from './support.ts';

const UNARY = { streaming: false, dropUsageEvent: false };

/** Also asserts the rule for every non-streaming response: each chunk passes immediately, as the same object. */
function run(endpoint: Endpoint, pieces: readonly (Uint8Array | string)[], options: Partial<UsageMeterOptions> = {}) {
  const meter = createUsageMeter(endpoint, { ...UNARY, ...options });
  for (const piece of pieces) {
    const chunk = typeof piece === 'string' ? bytes(piece) : piece;
    const out = meter.push(chunk);
    expect(out).toHaveLength(chunk.length === 0 ? 0 : 1);
    if (chunk.length > 0) expect(out[0]).toBe(chunk);
  }
  const end = meter.end();
  expect(end.flush).toEqual([]);
  return end;
}

const answer =
  '{"id":"c","choices":[{"index":0,"message":{"content":"say \\"usage\\":{\\"prompt_tokens\\":9} \\\\"},"finish_reason":"length"}],' +
  '"usage":{"prompt_tokens":11,"total_tokens":16,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":2}},"x":[]}';

describe('a unary JSON answer', () => {
  it('tells its usage, end and finish, cut at every single offset', () => {
    const whole = bytes(answer);
    for (let first = 0; first <= whole.length; first++) {
      const end = run(chat, [whole.slice(0, first), whole.slice(first)]);
      expect(end).toEqual({ flush: [], usage: counts, complete: true, finish: 'length' });
    }
    expect(
      run(
        chat,
        Array.from(whole, (byte) => Uint8Array.of(byte)),
      ),
    ).toMatchObject({ usage: counts, finish: 'length' });
  });

  it('is complete only with its last brace', () => {
    const whole = bytes(answer);
    for (let end = 0; end < whole.length; end++) expect(run(chat, [whole.slice(0, end)]).complete).toBe(false);
    expect(run(chat, [`${answer} \n`]).complete).toBe(true);
    expect(run(chat, [answer, 'x']).complete).toBe(false);
    expect(run(chat, [answer, answer]).complete).toBe(false);
  });

  it('is read as JSON.parse reads it, with any text around the usage', () => {
    const decoy = fc.constantFrom<unknown>(
      { usage: { prompt_tokens: 99, completion_tokens: 99 } },
      [{ usage: { prompt_tokens: 99 }, finish_reason: 'decoy' }],
      '"usage":{"prompt_tokens":99}',
      'usage',
      '\\',
      '\\"',
      '}',
      { choices: [{ finish_reason: 'decoy' }] },
    );
    const member = fc.tuple(
      fc.oneof(fc.constantFrom('a', 'Usage', 'usag', 'usages', 'choice', 'data'), fc.string({ maxLength: 5 })),
      fc.oneof(decoy, fc.jsonValue({ maxDepth: 3 })),
    );
    const choice = fc.record({
      finish_reason: fc.constantFrom('stop', 'tool_calls', null),
      message: decoy,
      '\\"': fc.constant(1),
    });
    const choices = fc.oneof(fc.array(choice, { maxLength: 3 }), fc.constantFrom<unknown>(null, {}, 'x'));
    fc.assert(
      fc.property(
        fc.array(member, { maxLength: 6 }),
        choices,
        fc.nat(1000),
        fc.boolean(),
        fc.array(space, { maxLength: 4 }),
        cuts,
        (others, list, n, before, spaces, where) => {
          const usage = ['usage', { json: { prompt_tokens: n, completion_tokens: n + 1 } }, 0] as const;
          const rest = [...others, ['choices', list] as const].map(([key, json]) => [key, { json }, 0] as const);
          const filtered = rest.filter(([key]) => key !== 'usage');
          const whole = write({ members: before ? [usage, ...filtered] : [...filtered, usage] }, gaps(spaces));
          const end = run(chat, cut(bytes(whole), where));
          const reasons = Array.isArray(list) ? list.map((item) => item.finish_reason) : [];
          expect(end).toEqual({
            flush: [],
            complete: true,
            usage: { prompt: n, completion: n + 1, cached: 0, reasoning: 0, estimated: false },
            ...(reasons.some((reason) => reason !== null) && { finish: reasons.find((reason) => reason !== null) }),
          });
        },
      ),
      { numRuns: 2000 },
    );
  });

  it('of megabytes of embeddings is read, usage first or last', () => {
    const vector = JSON.stringify(Array.from({ length: 2000 }, (_, i) => Math.sin(i)));
    const data = Array.from({ length: 200 }, () => `{"object":"embedding","embedding":${vector}}`).join(',');
    const usage = '"usage":{"prompt_tokens":77,"total_tokens":77}';
    for (const whole of [`{"data":[${data}],${usage}}`, `{${usage},"data":[${data}]}`]) {
      const all = bytes(whole);
      const pieces = Array.from({ length: Math.ceil(all.length / 65536) }, (_, i) =>
        all.slice(i * 65536, (i + 1) * 65536),
      );
      const end = run(at('embeddings'), pieces);
      expect(end).toMatchObject({ complete: true, usage: { prompt: 77, completion: 0, estimated: false } });
    }
  });

  it('with an endless usage or key is not kept', () => {
    const long = `{"${'k'.repeat(100_000)}":1,"usage":{"a":"${'x'.repeat(100_000)}","prompt_tokens":1,"completion_tokens":1}}`;
    expect(run(chat, long.match(/.{1,999}/gs) ?? [])).toMatchObject({ complete: true, usage: { estimated: true } });
  });

  it('that nests without end is garbage, not a crash', () => {
    expect(run(chat, ['{"a":', '['.repeat(2_000_000)]).complete).toBe(false);
  });
});

describe('an answer that is not what it should be', () => {
  it.each([
    ['an HTML page', '<html><body>"usage": {"prompt_tokens": 1}</body></html>'],
    ['nothing', ''],
    ['white space', ' \n'],
    ['a word', 'null'],
    ['mismatched brackets', '{"choices":[}'],
    ['binary', '\u0000\u0001\u0002{'],
  ])('is incomplete and estimated: %s', (_, body) => {
    expect(run(chat, [body], { promptBytes: 100 })).toMatchObject({
      complete: false,
      usage: { prompt: 25, completion: 0, estimated: true },
    });
  });

  it('is estimated by its length when it was cut', () => {
    const end = run(chat, [answer.slice(0, 80)], { promptBytes: 40 });
    expect(end).toMatchObject({ complete: false, usage: { prompt: 10, completion: 20, estimated: true } });
  });

  it('is estimated where usage is missing or nonsense', () => {
    for (const usage of ['null', '[]', '{}', '"x"', '{"prompt_tokens":-1}', 'nul']) {
      expect(run(chat, [`{"usage":${usage}}`], { promptBytes: 4 }).usage).toMatchObject({ prompt: 1, estimated: true });
    }
  });

  it('costs nothing when the engine says that it failed', () => {
    const body = '{"error":{"message":"context too long","usage":{"prompt_tokens":5}},"usage":{"prompt_tokens":5}}';
    for (const status of [400, 500]) {
      expect(run(chat, [body], { status, promptBytes: 4000 }).usage).toEqual({
        prompt: 0,
        completion: 0,
        cached: 0,
        reasoning: 0,
        estimated: false,
      });
    }
  });
});

describe('other kinds of unary answers', () => {
  it('/v1/responses', () => {
    const body =
      '{"status":"incomplete","output":[{"status":"completed"}],"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":6,"output_tokens_details":{"reasoning_tokens":3}}}';
    expect(run(at('responses'), [body])).toEqual({
      flush: [],
      complete: true,
      finish: 'incomplete',
      usage: { prompt: 9, completion: 6, cached: 4, reasoning: 3, estimated: false },
    });
  });

  it('/v1/messages', () => {
    const body =
      '{"content":[],"stop_reason":"max_tokens","usage":{"input_tokens":9,"output_tokens":6,"cache_read_input_tokens":2}}';
    expect(run(at('messages'), [body])).toEqual({
      flush: [],
      complete: true,
      finish: 'max_tokens',
      usage: { prompt: 11, completion: 6, cached: 2, reasoning: 0, estimated: false },
    });
  });

  it('/v1/messages whose counts are more together than a count may be', () => {
    const usage = `{"input_tokens":${Number.MAX_SAFE_INTEGER},"output_tokens":6,"cache_read_input_tokens":1}`;
    const { usage: told } = run(at('messages'), [`{"content":[],"stop_reason":"end_turn","usage":${usage}}`]);
    expect(told?.prompt).toBe(Number.MAX_SAFE_INTEGER);
  });

  it('/v1/messages whose prompt is partly new in the cache', () => {
    const usage = '{"input_tokens":9,"output_tokens":6,"cache_creation_input_tokens":16,"cache_read_input_tokens":0}';
    expect(run(at('messages'), [`{"content":[],"stop_reason":"end_turn","usage":${usage}}`]).usage).toMatchObject({
      prompt: 25,
      cached: 0,
    });
  });

  it('/v1/rerank of engines that tell the total alone', () => {
    expect(run(at('rerank'), ['{"results":[],"usage":{"total_tokens":30}}']).usage).toMatchObject({
      prompt: 30,
      completion: 0,
      estimated: false,
    });
    expect(run(at('rerank'), ['[{"index":0,"score":0.5}]'], { promptBytes: 40 })).toMatchObject({
      complete: true,
      usage: { prompt: 10, completion: 0, estimated: true },
    });
  });

  it('/v1/tokenize counts no tokens', () => {
    expect(run(at('tokenize'), ['{"tokens":[1,2],"count":2}'], { promptBytes: 40 })).toMatchObject({
      complete: true,
      usage: { prompt: 0, completion: 0, estimated: false },
    });
  });

  it('/v1/images counts the tokens that the engine reports, and estimates none from the bytes of a picture', () => {
    const picture = `{"created":1,"data":[{"b64_json":"${'A'.repeat(4000)}"}]`;
    expect(run(at('images/generations'), [`${picture}}`], { promptBytes: 40 })).toMatchObject({
      complete: true,
      usage: { prompt: 0, completion: 0, estimated: false },
    });
    const usage = '"usage":{"input_tokens":7,"output_tokens":100,"total_tokens":107}';
    expect(run(at('images/edits'), [`${picture},${usage}}`], { promptBytes: 4000 })).toMatchObject({
      usage: { prompt: 7, completion: 100, estimated: false },
    });
    expect(run(at('images/generations'), [picture]).complete).toBe(false);
  });

  it('/v1/audio/speech is bytes, complete whenever they end', () => {
    expect(run(at('audio/speech'), [Uint8Array.of(0xff, 0xfb, 0x90), '{"a":'])).toMatchObject({ complete: true });
    expect(run(at('audio/speech'), ['{"error":'], { contentType: 'application/json', status: 400 }).complete).toBe(
      false,
    );
  });

  it('/v1/images counts the images of a response, and none of a refused one', () => {
    const picture = `{"b64_json":"${'A'.repeat(4000)}","nested":{"data":[{}]}}`;
    const images = (body: string, more: object = {}) => run(at('images/generations'), [body], more).usage.images;
    expect(images(`{"created":1,"data":[${picture}, ${picture}]}`)).toBe(2);
    expect(images(`{"other":[${picture}],"data":[]}`)).toBeUndefined();
    expect(images(`{"data":{"data":[{},{}]}}`)).toBeUndefined();
    expect(images(`{"data":[{}],"error":{}}`, { status: 400 })).toBeUndefined();
    expect(images(`{"data":[${'{},'.repeat(5000)}{}]}`)).toBe(1_024);
  });

  it('/v1/audio/transcriptions counts the engine’s seconds, and measures the upload if it reports none', () => {
    const uploadedMs = () => 5_000;
    const audio = (body: string, more: object = {}) =>
      run(at('audio/transcriptions'), [body], { uploadedMs, ...more }).usage.audioMs;
    expect(audio('{"text":"a","usage":{"type":"duration","seconds":3}}')).toBe(3_000);
    expect(audio('{"task":"transcribe","duration":8.47,"segments":[{"duration":1}],"text":"a"}')).toBe(8_470);
    expect(audio('{"duration":"8.47","text":"a"}')).toBe(8_470);
    for (const unknown of [
      '{"text":"a"}',
      '{"duration":-1}',
      '{"duration":"1e9"}',
      '{"duration":0}',
      '{"duration":null}',
    ])
      expect([unknown, audio(unknown)]).toEqual([unknown, 5_000]);
    expect(audio('{"duration":1e300}')).toBe(86_400_000);
    expect(audio('hello', { contentType: 'text/plain' })).toBe(5_000);
    expect(audio('{"error":{}}', { status: 400 })).toBeUndefined();
    expect(run(chat, ['{"duration":3}'], { uploadedMs }).usage.audioMs).toBeUndefined();
  });

  it('/v1/audio/speech counts the audio of the response', () => {
    const audio = (contentType: string) =>
      run(at('audio/speech'), [new Uint8Array(48_000)], { contentType }).usage.audioMs;
    expect(audio('audio/pcm')).toBe(1_000);
    expect(audio('audio/L16; rate=16000')).toBe(1_500);
    expect(audio('audio/mp4')).toBe(12_000);
    expect(audio('application/json')).toBeUndefined();
  });

  it('go by the content type where it is known', () => {
    const srt = '1\n00:00:00,000 --> 00:00:04,000\nhello\n';
    expect(run(at('audio/transcriptions'), [srt], { contentType: 'text/plain; charset=utf-8' }).complete).toBe(true);
    expect(run(at('audio/transcriptions'), [srt], { contentType: 'application/json' }).complete).toBe(false);
    for (const contentType of ['Application/JSON; charset=utf-8', 'application/problem+json']) {
      expect(run(chat, [answer.slice(0, 9)], { contentType }).complete).toBe(false);
    }
    expect(run(chat, ['hello, world'], { contentType: 'text/plain', promptBytes: 8 }).usage).toMatchObject({
      prompt: 2,
      completion: 3,
      estimated: true,
    });
  });

  it('are never looked into as streams where the endpoint has none', () => {
    expect(
      text(createUsageMeter(at('embeddings'), { streaming: true, dropUsageEvent: true }).push(bytes('data: {"choi'))),
    ).toBe('data: {"choi');
  });
});

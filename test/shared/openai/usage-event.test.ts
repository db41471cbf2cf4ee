/** The usage event that an agent requests if the client did not: only this event is removed from the stream. */
import fc from 'fast-check';
import { Stream } from 'openai/streaming';
import { describe, expect, it } from 'vitest';
import { at, chat, counts, DROP, done, KEEP, run, stop, token, usage } from './metered.ts';
import { bytes, cut, cuts, text } from './support.ts';

/** Everything that a hostile or helpful engine might send next to the usage event. None of it may be dropped. */
const LOOKALIKES = [
  token('"choices":[],"usage":{"prompt_tokens":1}'),
  token('usage'),
  token('data: {"choices":[],"usage":{}}\n\n'),
  token('x', ',"usage":{"prompt_tokens":1,"completion_tokens":1}'),
  'data: {"choices":[],"prompt_filter_results":[]}\n\n',
  'data: {"choices":[],"usage":null}\n\n',
  'data: {"choices":[],"usage":[1]}\n\n',
  'data: {"choices":[],"usage":"{"}\n\n',
  'data: {"choices":{},"usage":{"prompt_tokens":1}}\n\n',
  'data: {"usage":{"prompt_tokens":1}}\n\n',
  'data: {"a":{"choices":[],"usage":{"prompt_tokens":1}}}\n\n',
  'data: {"choices":[],"a":{"usage":{"prompt_tokens":1}}}\n\n',
  'data: [{"choices":[],"usage":{"prompt_tokens":1}}]\n\n',
  'data: {"choices":[],"usage":{"prompt_tokens":1}\n\n',
  ': {"choices":[],"usage":{"prompt_tokens":1}}\n\n',
  'event: {"choices":[],"usage":{}}\n\n',
  ': ping\n\n',
  '\n',
  'data:\n\n',
  'data: nonsense "usage": {\n\n',
];

describe('the usage event that we caused', () => {
  it('is left out, and every other byte passes in order, however the stream is cut', () => {
    const event = fc.oneof(
      fc.constantFrom(...LOOKALIKES),
      fc.string({ unit: 'grapheme' }).map((s) => token(s)),
    );
    const eols = fc.constantFrom('\n', '\r\n', '\r');
    fc.assert(
      fc.property(
        fc.array(event, { maxLength: 8 }),
        fc.array(event, { maxLength: 4 }),
        eols,
        cuts,
        (before, after, eol, where) => {
          const ends = (s: string) => s.replaceAll('\n', eol);
          const whole = bytes(ends([...before, usage, ...after, done].join('')));
          const { out, usage: told, complete } = run(chat, DROP, cut(whole, where));
          expect(out).toBe(ends([...before, ...after, done].join('')));
          expect(complete).toBe(true);
          if (!after.some((s) => s.includes('"usage":{'))) expect(told).toEqual(counts);
        },
      ),
      { numRuns: 2000 },
    );
  });

  it.each(['\n', '\r\n', '\r'])('is left out at every single cut and byte by byte, line ends %j', (eol) => {
    const ends = (s: string) => bytes(s.replaceAll('\n', eol));
    const whole = ends(token('é😀') + stop + usage + done);
    const wanted = text(ends(token('é😀') + stop + done));
    for (let first = 0; first <= whole.length; first++) {
      const result = run(chat, DROP, [whole.slice(0, first), whole.slice(first)]);
      expect(result).toMatchObject({ out: wanted, usage: counts, complete: true, finish: 'stop' });
    }
    const single = run(
      chat,
      DROP,
      Array.from(whole, (byte) => Uint8Array.of(byte)),
    );
    expect(single).toMatchObject({ out: wanted, usage: counts, complete: true, finish: 'stop' });
  });

  it('is left out as often as the engine sends it', () => {
    expect(run(chat, DROP, [usage + usage + done]).out).toBe(done);
    expect(run(chat, DROP, [usage, usage, done]).out).toBe(done);
  });

  it('is kept where the client asked for it, but counted', () => {
    const pieces = [token('a'), stop + usage, done];
    expect(run(chat, KEEP, pieces)).toMatchObject({ steps: pieces, usage: counts, complete: true });
  });

  it('is left out also when it spans lines or is written with white space', () => {
    const spread =
      'id: 7\ndata: { "choices" : [ ] ,\ndata: "usage" :\ndata:  { "prompt_tokens": 1, "completion_tokens": 2 } }\n\n';
    expect(run(chat, DROP, [token('a') + spread + done])).toMatchObject({
      out: token('a') + done,
      usage: { prompt: 1, completion: 2, estimated: false },
    });
  });

  it('is counted when the engine ends without the last blank line', () => {
    for (const tail of ['', '\n', '\r']) {
      const result = run(chat, DROP, [token('a') + usage.trimEnd() + tail]);
      expect(result).toMatchObject({ out: token('a'), usage: counts, complete: false });
      expect(run(chat, KEEP, [token('a') + done.trimEnd() + tail]).complete).toBe(true);
    }
  });

  it('is found also in an event that has the word before', () => {
    const named = usage.replace('"id":"c"', '"model":"usage","id":"usage"');
    expect(run(chat, DROP, [token('a') + named + done])).toMatchObject({ out: token('a') + done, usage: counts });
  });

  it('is dropped on endpoints only where we asked for it', () => {
    const odd = 'data: {"choices":[],"usage":{"input_tokens":1}}\n\n';
    expect(run(at('responses'), DROP, [odd]).out).toBe(odd);
    expect(run(at('messages'), DROP, [odd]).out).toBe(odd);
    expect(run(at('audio/transcriptions'), DROP, [usage]).out).toBe(usage);
  });

  it('does not reach the OpenAI SDK', async () => {
    const { out } = run(chat, DROP, [token('Hel'), token('lo') + stop, usage + done]);
    const seen: unknown[] = [];
    const stream = Stream.fromSSEResponse<{ choices: unknown[] }>(new Response(out), new AbortController());
    for await (const chunk of stream) seen.push(chunk.choices.length);
    expect(seen).toEqual([1, 1, 1]);
  });
});

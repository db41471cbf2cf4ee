import { describe, expect, it } from 'vitest';
import type { Endpoint } from '../../../shared/openai/endpoints.ts';
import { createUsageMeter } from '../../../shared/openai/usage-meter.ts';
import { at, chat, counts, DROP, done, KEEP, run, stop, token, usage } from './metered.ts';
import { bytes, cut, text } from './support.ts';

describe('a metered stream', () => {
  it('passes each chunk as the same object where nothing is to be dropped', () => {
    const meter = createUsageMeter(chat, KEEP);
    for (const piece of [token('a'), token('b') + usage, 'garbage\n\n']) {
      const chunk = bytes(piece);
      const out = meter.push(chunk);
      expect(out).toHaveLength(1);
      expect(out[0]).toBe(chunk);
    }
  });

  it('passes a complete event at once, as the same object, also while the usage event is awaited', () => {
    const meter = createUsageMeter(chat, DROP);
    const chunk = bytes(token('a') + token('b'));
    expect(meter.push(chunk)).toEqual([chunk]);
    expect(meter.push(chunk)[0]).toBe(chunk);
  });

  it('holds back no more than the event that has not ended', () => {
    const whole = bytes(token('a') + token('b'));
    for (let first = 1; first < whole.length; first++) {
      const { steps } = run(chat, DROP, [whole.slice(0, first), whole.slice(first)]);
      const complete = first >= token('a').length ? token('a') : '';
      expect(steps[0]).toBe(complete);
    }
  });

  it('leaves out each usage event of an engine that sends one behind every chunk', () => {
    const each = token('a', ',"usage":{"prompt_tokens":11}');
    const whole = usage + each + usage + usage + each + stop + usage + done;
    for (const size of [1, 7, 64, whole.length]) {
      const pieces = whole.match(new RegExp(`.{1,${size}}`, 'gs')) ?? [];
      expect(run(chat, DROP, pieces)).toMatchObject({ out: each + each + stop + done, usage: counts, complete: true });
    }
  });

  it('holds back an event that has not ended also behind the usage event', () => {
    expect(run(chat, DROP, [usage, 'data: [DO', 'NE]\n\n']).steps).toEqual(['', '', 'data: [DONE]\n\n']);
  });

  it('holds back 64 KiB at most: a longer event passes as it comes', () => {
    const long = token('x'.repeat(200_000));
    const pieces = long.match(/.{1,1000}/gs) ?? [];
    const meter = createUsageMeter(chat, DROP);
    let came = 0;
    let went = 0;
    let out = '';
    for (const piece of pieces) {
      came += piece.length;
      const given = text(meter.push(bytes(piece)));
      went += given.length;
      out += given;
      expect(came - went).toBeLessThanOrEqual(64 * 1024);
    }
    expect(out).toBe(long);
    expect(text(meter.push(bytes(token('y') + usage + done)))).toBe(token('y') + done);
    expect(meter.end()).toMatchObject({ usage: counts, complete: true, flush: [] });
  });

  it('is cut where neither its end, nor a reason for one, nor an error came', () => {
    const ends: [Endpoint, string, boolean][] = [
      [chat, token('a'), true],
      [chat, '', true],
      [chat, ': ping\n\n', true],
      [chat, token('a') + done, false],
      [chat, token('a') + done.trimEnd(), false],
      [chat, token('a') + stop, false],
      [chat, `${token('a')}data: {"error":{"message":"out of memory"}}\n\n`, false],
      [chat, `${token('a')}data: { "error": {"message":"out of memory"}}\n\n`, false],
      [at('messages'), 'event: message_start\ndata: {"type":"message_start"}\n\n', true],
      [at('messages'), 'event: error\ndata: {"type":"error"}\n\n', false],
      [at('responses'), 'data: {"type":"response.output_text.delta"}\n\n', true],
      [at('responses'), 'data: {"type":"error"}\n\n', false],
      [at('audio/transcriptions'), 'data: {"text":"a"}\n\n', false],
    ];
    for (const [endpoint, stream, expected] of ends) {
      expect(run(endpoint, KEEP, [stream]).cut ?? false, `${endpoint.path} ${stream}`).toBe(expected);
    }
  });

  it('is cut where a choice has begun and not ended', () => {
    const of = (index: number, finish: string | null) =>
      `data: {"choices":[{"index":${index},"delta":{"content":"x"},"finish_reason":${JSON.stringify(finish)}}]}\n\n`;
    const tool = `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{"}}]},"finish_reason":null}]}\n\n`;
    const ends: [string, boolean][] = [
      [of(0, null) + of(0, 'stop') + of(1, null), true],
      [of(0, null) + of(1, null) + of(1, 'stop'), true],
      [of(0, null) + of(1, 'stop') + of(0, 'length'), false],
      [of(2, 'stop') + of(0, 'stop'), true],
      [of(0, 'stop') + of(1, null) + done, false],
      [tool + of(0, 'tool_calls'), false],
      [tool, true],
      [of(0, 'stop') + of(1e9, null), false],
      [`${of(0, 'stop')}data: {"choices":[{"index":1,"text":"\\"index\\":1"}]}\n\n`, true],
      [`${of(0, 'stop')}data: {"choices":[{"index":"1"},null,7,{"index":-1}]}\n\n`, false],
    ];
    for (const [stream, expected] of ends) expect(run(chat, KEEP, [stream]).cut ?? false, stream).toBe(expected);
  });

  it.each([
    ['one chunk', (whole: string) => [whole]],
    ['events', (whole: string) => whole.split(/(?<=\n\n)/)],
    ['cuts before it', (whole: string) => [whole.slice(0, 20), whole.slice(20)]],
    ['bytes', (whole: string) => [...whole]],
  ])('holds back that the engine gave the answer up, and all behind it: %s', (_, pieces) => {
    const abort = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n`;
    for (const options of [KEEP, DROP]) {
      const ended = run(chat, options, pieces(token('a') + token('b') + abort + usage + done));
      expect(ended).toMatchObject({ out: token('a') + token('b'), aborted: true, complete: false });
    }
    expect(run(chat, KEEP, [token('"abort"'), stop, done])).toMatchObject({ complete: true });
    expect(run(chat, KEEP, [token('"abort"'), stop, done]).aborted).toBeUndefined();
  });

  it.each([
    ['one chunk', (whole: string) => [whole]],
    ['events', (whole: string) => whole.split(/(?<=\n\n)/)],
    ['the name in two', (whole: string) => whole.split(/(?<=err)(?=or: )/)],
    ['bytes', (whole: string) => [...whole]],
  ])('holds back an event whose field is `error`, as llama.cpp writes it, and all behind it: %s', (_, pieces) => {
    const error = 'error: {"code":500,"message":"context shift failed","type":"server_error"}\n\n';
    for (const options of [KEEP, DROP]) {
      const ended = run(chat, options, pieces(token('a') + error + done));
      expect(ended).toMatchObject({ out: token('a'), aborted: true, complete: false });
      expect(run(at('messages'), options, pieces(error))).toMatchObject({ out: '', aborted: true });
    }
    expect(run(chat, KEEP, [token('error: x\nerror: y'), stop, done])).toMatchObject({ complete: true });
  });

  it('is whole where an engine that knows no `n` answers once and says so', () => {
    const ended = run(chat, KEEP, [token('a'), stop, done]);
    expect(ended).toMatchObject({ complete: true, finish: 'stop' });
    expect(ended).not.toHaveProperty('cut');
  });

  it.each([
    'data: {"error":{"message":"x"}}\n\n',
    'data: {"object": "error", "message": "x", "code": 500}\n\n',
    'data: {"id":"c","error":{"message":"x"}}\n\n',
  ])('is not whole where the engine says that it failed, though [DONE] follows: %s', (error) => {
    expect(run(chat, KEEP, [token('a'), error, done])).toMatchObject({
      complete: false,
      out: token('a') + error + done,
    });
  });

  it('passes a usage event longer than any: it cannot be ours', () => {
    const fat = usage.replace('"id":"c"', `"id":"${'c'.repeat(100_000)}"`);
    const pieces = fat.match(/.{1,1000}/gs) ?? [];
    expect(run(chat, DROP, [...pieces, done]).out).toBe(fat + done);
  });

  it('gives out what it held when the engine breaks off', () => {
    expect(run(chat, DROP, [`${token('a')}data: {"choi`])).toMatchObject({
      steps: [token('a')],
      out: `${token('a')}data: {"choi`,
      complete: false,
    });
  });

  it('gives nothing out twice when the engine breaks off in an event too long to hold', () => {
    const pieces =
      token('x'.repeat(100_000))
        .slice(0, -5)
        .match(/.{1,1000}/gs) ?? [];
    expect(run(chat, DROP, pieces).out).toBe(pieces.join(''));
  });

  it('passes garbage untouched and guesses its cost', () => {
    const garbage = Uint8Array.from({ length: 5000 }, (_, i) => (i * 37) % 256);
    const meter = createUsageMeter(chat, { ...DROP, promptBytes: 41 });
    const out = cut(garbage, [1, 500, 4000]).flatMap((piece) => meter.push(piece));
    const { flush, usage, complete } = meter.end();
    expect(Buffer.concat([...out, ...flush])).toEqual(Buffer.from(garbage));
    expect([usage.prompt, usage.estimated, complete]).toEqual([11, true, false]);
  });
});

describe('the cost of a stream', () => {
  it('is estimated by its events when it was cut before the usage came', () => {
    const result = run(chat, { ...DROP, promptBytes: 400 }, [token('a'), token('b'), ': ping\n\n', token('usage')]);
    expect(result).toMatchObject({
      usage: { prompt: 100, completion: 3, cached: 0, reasoning: 0, estimated: true },
      complete: false,
    });
    expect(result).not.toHaveProperty('finish');
  });

  it('does not count the end, errors or the usage itself as tokens', () => {
    const error = 'data: {"error":{"message":"out of memory","code":500}}\n\n';
    expect(run(chat, KEEP, [token('a'), error, 'data: {"choices":[],"usage":{}}\n\n', done]).usage).toEqual({
      prompt: 0,
      completion: 1,
      cached: 0,
      reasoning: 0,
      estimated: true,
    });
  });

  it('takes the last of running counts, also when cut', () => {
    const running = (n: number) => token('a', `,"usage":{"prompt_tokens":7,"completion_tokens":${n}}`);
    expect(run(chat, DROP, [running(1), running(2)])).toMatchObject({
      usage: { prompt: 7, completion: 2, estimated: false },
      complete: false,
    });
  });

  it.each(['-1', '1.5', '"3"', 'null', '1e300', 'true'])('believes no count of %s', (count) => {
    const lie = `data: {"choices":[],"usage":{"prompt_tokens":${count},"completion_tokens":${count}}}\n\n`;
    expect(run(chat, { ...KEEP, promptBytes: 8 }, [token('a'), lie, done]).usage).toMatchObject({
      prompt: 2,
      completion: 1,
      estimated: true,
    });
  });

  it('is not what the answer quotes', () => {
    const quotes = token('"usage":{"prompt_tokens":999,"completion_tokens":999}') + token('usage');
    expect(run(chat, DROP, [quotes, usage, done]).usage).toEqual(counts);
    expect(run(chat, { ...DROP, promptBytes: 4 }, [quotes]).usage).toMatchObject({
      prompt: 1,
      completion: 2,
      estimated: true,
    });
  });

  it('is nothing where the engine refused', () => {
    expect(run(chat, { ...DROP, status: 429, promptBytes: 4000 }, [token('a')]).usage).toMatchObject({
      prompt: 0,
      completion: 0,
    });
  });

  it('tells why it stopped, not what the text says', () => {
    const text = token('{"finish_reason":"stop"}') + token('finish_reason');
    expect(run(chat, KEEP, [text])).not.toHaveProperty('finish');
    const length = 'data: {"choices":[{"index":0,"text":"","finish_reason" : "length"}]}\n\n';
    expect(run(at('completions'), KEEP, [text + length + stop]).finish).toBe('length');
    const absurd = `data: {"choices":[{"finish_reason":"${'x'.repeat(5000)}"}]}\n\n`;
    expect(run(chat, KEEP, [absurd])).not.toHaveProperty('finish');
  });

  it('of an event too long to look into is one token, and the stream can still be complete', () => {
    const huge = token('x'.repeat(2_000_000));
    const pieces = [huge.slice(0, 1_500_000), huge.slice(1_500_000), usage, done];
    expect(run(chat, DROP, pieces)).toMatchObject({ out: huge + done, usage: counts, complete: true });
    expect(run(chat, DROP, pieces.slice(0, 2)).usage.completion).toBe(1);
  });
});

describe('other kinds of streams', () => {
  const responses = [
    'event: response.created\ndata: {"type":"response.created","response":{"id":"r","status":"in_progress","usage":null}}\n\n',
    'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"\\"response.completed\\""}\n\n',
    'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"b"}\n\n',
    'event: response.output_text.done\ndata: {"type":"response.output_text.done","text":"ab"}\n\n',
  ];
  const ended = (type: string, status: string) =>
    `event: response.${type}\ndata: {"type":"response.${type}","response":{"status":"${status}","usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":6,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":15}}}\n\n`;

  it.each([
    ['completed', 'completed'],
    ['incomplete', 'incomplete'],
    ['failed', 'failed'],
  ])('/v1/responses is complete with response.%s and its usage', (type, status) => {
    expect(run(at('responses'), KEEP, [...responses, ended(type, status)])).toMatchObject({
      usage: { prompt: 9, completion: 6, cached: 4, reasoning: 3, estimated: false },
      complete: true,
      finish: status,
    });
  });

  it('/v1/responses needs no event names', () => {
    const bare = [...responses, ended('completed', 'completed')].map((event) => event.replace(/^event: .*\n/, ''));
    expect(run(at('responses'), KEEP, bare)).toMatchObject({
      usage: { completion: 6, estimated: false },
      complete: true,
    });
  });

  it('/v1/responses cut before the end is estimated by its deltas', () => {
    expect(run(at('responses'), { ...KEEP, promptBytes: 40 }, responses)).toMatchObject({
      usage: { prompt: 10, completion: 2, estimated: true },
      complete: false,
    });
  });

  it('/v1/responses is complete also when the last event repeats more text than is looked into', () => {
    const last = ended('completed', 'completed').replace('"usage"', `"output":"${'x'.repeat(2_000_000)}","usage"`);
    const pieces = [...responses, last.slice(0, 1_900_000), last.slice(1_900_000)];
    expect(run(at('responses'), KEEP, pieces)).toMatchObject({
      complete: true,
      usage: { estimated: true, completion: 2 },
    });
  });

  const messages = [
    'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":12,"cache_read_input_tokens":5,"output_tokens":1}}}\n\n',
    'event: ping\ndata: {"type":"ping"}\n\n',
    'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"\\"usage\\": {"}}\n\n',
    'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"b"}}\n\n',
    'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"c"}}\n\n',
    'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":42}}\n\n',
    'event: message_stop\ndata: {"type":"message_stop"}\n\n',
  ];

  it('/v1/messages adds up its first and its last word', () => {
    expect(run(at('messages'), KEEP, messages)).toMatchObject({
      usage: { prompt: 17, completion: 42, cached: 5, reasoning: 0, estimated: false },
      complete: true,
      finish: 'end_turn',
      out: messages.join(''),
    });
  });

  it('/v1/messages cut in the middle knows the prompt and estimates the rest: its first word is a placeholder', () => {
    expect(run(at('messages'), { ...KEEP, promptBytes: 4000 }, messages.slice(0, 5))).toMatchObject({
      usage: { prompt: 17, completion: 3, cached: 5, estimated: true },
      complete: false,
    });
  });

  it('/v1/messages cut in the middle estimates a prompt that its first word counts as 0: it is a placeholder, too', () => {
    const first = messages[0]?.replace('12', '0').replace(',"cache_read_input_tokens":5', '') ?? '';
    expect(run(at('messages'), { ...KEEP, promptBytes: 4000 }, [first, ...messages.slice(1, 5)])).toMatchObject({
      usage: { prompt: 1000, completion: 3, estimated: true },
    });
  });

  it('do not take the end of another kind for theirs', () => {
    expect(run(at('messages'), KEEP, [done]).complete).toBe(false);
    expect(run(at('responses'), KEEP, [messages.join('')]).complete).toBe(false);
    expect(run(chat, KEEP, [messages.join('')]).complete).toBe(false);
    expect(run(chat, KEEP, [token('[DONE]'), 'event: [DONE]\n\n', 'data: [DONE] \n\n']).complete).toBe(false);
  });

  it('/v1/images/generations ends with a completed picture, and counts what that reports', () => {
    const named = (type: string, more = '') => `event: ${type}\ndata: {"type":"${type}","b64_json":"AA=="${more}}\n\n`;
    const sketch = named('image_generation.partial_image');
    const usage = ',"usage":{"input_tokens":7,"output_tokens":100,"total_tokens":107}';
    expect(run(at('images/generations'), KEEP, [sketch, named('image_generation.completed', usage)])).toMatchObject({
      complete: true,
      usage: { prompt: 7, completion: 100, estimated: false, images: 1 },
    });
    expect(run(at('images/edits'), KEEP, [sketch, named('image_edit.completed')])).toMatchObject({
      complete: true,
      usage: { prompt: 0, completion: 0, estimated: false },
    });
    expect(run(at('images/generations'), KEEP, [sketch])).toMatchObject({ complete: false, cut: true });
  });

  it('/v1/audio/transcriptions counts the seconds of the last event, else those of the upload', () => {
    const uploaded = { ...KEEP, uploadedMs: () => 7_000 };
    const last = 'data: {"type":"transcript.text.done","text":"a","usage":{"type":"duration","seconds":3}}\n\n';
    expect(run(at('audio/transcriptions'), uploaded, [token('a'), last, done]).usage).toMatchObject({ audioMs: 3_000 });
    expect(run(at('audio/transcriptions'), uploaded, [token('a'), done]).usage).toMatchObject({ audioMs: 7_000 });
  });

  it('/v1/audio/transcriptions ends with [DONE] and counts no tokens', () => {
    expect(run(at('audio/transcriptions'), KEEP, [token('a'), done])).toMatchObject({
      complete: true,
      usage: { prompt: 0, completion: 0, estimated: false },
    });
  });
});

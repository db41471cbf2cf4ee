import { expect, test } from 'vitest';
import { batchUsageRow, lineBytes, lineStreamNumber, lineUsage } from '../../../gateway/batch/line-usage.ts';
import { InputCheck } from '../../../shared/batch/batch-input-check.ts';

const of = (usage: unknown, padding = 0) =>
  lineUsage({ body: JSON.stringify({ usage, text: 'x'.repeat(padding) }) }, 100);

test('tokens are read of each kind of answer', () => {
  expect(of({ prompt_tokens: 9, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 4 } })).toEqual({
    input: 9,
    cached: 4,
    output: 5,
    reasoning: 0,
  });
  expect(of({ input_tokens: 9, output_tokens: 5, output_tokens_details: { reasoning_tokens: 3 } })).toMatchObject({
    input: 9,
    output: 5,
    reasoning: 3,
  });
});

test('a provider cannot charge for more tokens than bytes were sent and came back', () => {
  const much = of({ prompt_tokens: 2 ** 53 - 1, completion_tokens: 1e9 }, 50);
  expect(much.input).toBeLessThanOrEqual(100 + 1_024);
  expect(much.output).toBeLessThan(200);
});

test('a line cannot be charged for the other lines of its chunk', () => {
  const line = (id: number, text: string) =>
    JSON.stringify({ custom_id: `${id}`, method: 'POST', url: '/v1/completions', body: { model: 'm', prompt: text } });
  const lines = [line(1, 'a'), line(2, 'a'.repeat(500)), ...Array.from({ length: 40 }, (_, n) => line(n + 3, 'b'))];
  const check = new InputCheck({ endpoint: '/v1/completions' });
  check.push(new TextEncoder().encode(lines.join('\n')));
  const { chunks } = check.end();
  expect(chunks.map((chunk) => chunk.lines)).toEqual([42]);
  expect(lineBytes(chunks[0])).toBe(lines[1]?.length);
  // Chunks of an earlier version.
  expect([lineBytes({ bytes: 7 }), lineBytes(undefined)]).toEqual([7, 0]);
});

test('an invalid count counts nothing', () => {
  for (const usage of [null, 7, 'x', { prompt_tokens: -1 }, { prompt_tokens: '9' }, { prompt_tokens: 0.5 }])
    expect(of(usage)).toMatchObject({ input: 0, output: 0 });
  expect(lineUsage({ body: 'nope' }, 100).input).toBe(0);
});

test('two batches never share the numbers of their lines, and a line keeps its own', () => {
  const batches = [
    'batch_ebc2b5292c17b1833bf20ec4',
    'batch_34fb9140ae48813cc50b7e08',
    ...Array.from({ length: 300 }, (_, n) => `batch_${n.toString(16).padStart(24, '0')}`),
  ];
  const numbers = batches.flatMap((batch) =>
    Array.from({ length: 1_000 }, (_, n) => lineStreamNumber(batch, n >> 7, n & 127)),
  );
  expect(new Set(numbers).size).toBe(numbers.length);
  expect(numbers.every((number) => Number.isSafeInteger(number) && number >= 2 ** 52)).toBe(true);
  expect(lineStreamNumber('batch_a', 3, 7)).toBe(lineStreamNumber('batch_a', 3, 7));
});

test('a line with audio counts the seconds that its engine reports, and no more than its bytes can hold', () => {
  const audioMs = (endpoint: string, body: object, status = 200) => {
    const spec = { id: 'b', endpoint, account: { keyId: 'k', traced: false } } as never;
    const result = { line: 0, status_code: status, request_id: 'r', body: JSON.stringify(body) };
    const of = { spec, result, ref: { node: 'n', chunk: 0 }, provider: 'lab', at: 0, model: 'm', inputBytes: 1_000 };
    return batchUsageRow(of).audioMs;
  };
  const path = '/v1/audio/transcriptions';
  expect(audioMs(path, { text: 'a', usage: { type: 'duration', seconds: 3 } })).toBe(3_000);
  expect(audioMs('/v1/audio/translations', { text: 'a', duration: 1.5 })).toBe(1_500);
  expect(audioMs(path, { duration: 1e9 })).toBe(8_000);
  expect(audioMs(path, { text: 'a' })).toBeUndefined();
  expect(audioMs(path, { duration: 3 }, 400)).toBeUndefined();
  expect(audioMs('/v1/chat/completions', { duration: 3 })).toBeUndefined();
});

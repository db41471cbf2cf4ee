import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { csvHead, traceLine } from '../../gateway/usage/trace-line.ts';
import { readTrace } from '../../scheduler/traces/read-trace.ts';
import { otelaPlan } from './support/small.ts';

const folder = mkdtempSync(join(tmpdir(), 'otela-traces-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Hand-written samples that follow the published column lists. */
const sample = (name: string) => join(import.meta.dirname, 'data/traces', name);
const file = (text: string) => {
  const path = join(folder, `${Math.random()}.csv`);
  writeFileSync(path, text);
  return path;
};
const simulate = (trace: string, ...more: string[]) =>
  otelaPlan('simulate', '--model', 'Qwen3-8B', '--gpu', 'H100-SXM', '--trace', trace, '--json', ...more);

describe('a trace', () => {
  it("of Azure's has dates with seven decimals and counts from its first request", () => {
    const { format, rows } = readTrace(sample('azure-2023.csv'));
    expect(format).toBe('azure');
    expect(rows.map(({ input, output }) => [input, output])).toEqual([
      [4808, 10],
      [3180, 8],
      [110, 27],
    ]);
    expect(rows[1]?.arrival).toBeCloseTo(0.052, 6);
    expect(rows[2]?.arrival).toBeCloseTo(0.098204, 6);
  });

  it("of Azure's week of 2024 has zones", () => {
    const { rows } = readTrace(sample('azure-2024.csv'));
    expect(rows.map(({ arrival }) => Number(arrival.toFixed(6)))).toEqual([0, 0.00993, 0.99103]);
  });

  it("of Mooncake's has milliseconds and the blocks that prompts share, the last part of a block not among them", () => {
    const { rows, prefixBlockTokens } = readTrace(sample('mooncake.jsonl'));
    expect(prefixBlockTokens).toBe(512);
    expect(rows[1]).toEqual({ arrival: 30.052, input: 1700, output: 49, hashes: [0, 1, 3] });
  });

  it("of BurstGPT's leaves failures out and can be cut to a model", () => {
    const whole = readTrace(sample('burstgpt.csv'));
    expect([whole.rows.length, whole.leftOut]).toEqual([3, 2]);
    expect(readTrace(sample('burstgpt.csv'), 'GPT-4').rows).toEqual([{ arrival: 45, input: 1087, output: 230 }]);
  });

  it('of SwissAI’s published one has ISO dates, missing counts and buckets of 16 tokens', () => {
    const line = (more: object) =>
      JSON.stringify({
        id: 'a',
        status: 'success',
        created_at: '2025-03-01T10:00:00Z',
        finished_at: '2025-03-01T10:00:04Z',
        model: 'Qwen/Qwen3-32B',
        model_parameters: {},
        reported_token_input: 40,
        reported_token_output: 12,
        ...more,
      });
    const path = file(
      [
        line({}),
        line({ created_at: '2025-03-01 10:00:20.5', reported_token_input: -1, token_count: 33, bucket_ids: [7, 8] }),
        line({ reported_token_output: -1 }),
        line({ created_at: '\\N' }),
      ].join('\n'),
    );
    const { format, rows, leftOut, prefixBlockTokens } = readTrace(path);
    expect([format, prefixBlockTokens, leftOut]).toEqual(['swissai', 16, 2]);
    expect(rows.map(({ arrival, input, output, hashes }) => [arrival, input, output, hashes?.length])).toEqual([
      [0, 40, 12, 0],
      [20.5, 33, 12, 2],
    ]);
  });

  it.each(['ndjson', 'csv', 'published'] as const)(
    'of this project’s gateway is an input as it is exported: %s',
    async (format) => {
      const question = { from: 0, to: 1, format, secret: 's', privateModels: new Set<string>() };
      const row = (at: number, buckets: string[]) =>
        traceLine(
          {
            session: 's',
            stream: 1,
            at,
            request: 'r',
            attempt: 1,
            provider: 'p',
            key: 'k',
            user: 'u',
            project: '',
            model: 'm',
            endpoint: 1,
            streamed: true,
            status: 200,
            prompt: 40,
            completion: 8,
            cached: 0,
            reasoning: 0,
            firstMs: 5,
            totalMs: 100,
            aborted: false,
            estimated: false,
            complete: true,
            bytes: 1,
            buckets,
            traced: true,
          },
          question,
        );
      const head = format === 'csv' ? csvHead(question) : '';
      const path = file(head + row(1_700_000_000_000, ['1', '2']) + row(1_700_000_009_000, ['1', '2']));
      const { code, log } = await simulate(path);
      const name = format === 'published' ? 'swissai' : 'otela';
      expect([code, log]).toEqual([0, expect.stringMatching(new RegExp(`${name}, 2 requests`))]);
    },
  );

  it.each(['otela.ndjson', 'otela.csv'])(
    "of our own export (%s) has the prompts' blocks of 16 tokens, chained",
    (name) => {
      const { rows, prefixBlockTokens } = readTrace(sample(name), 'qwen3-8b');
      expect(prefixBlockTokens).toBe(16);
      expect(rows.map(({ arrival, input }) => [arrival, input])).toEqual([
        [0, 40],
        [20.5, 60],
      ]);
      expect(rows[0]?.hashes).toEqual(rows[1]?.hashes?.slice(0, 2));
    },
  );

  it('without a header begins with its first row, also where that is in scientific notation', () => {
    expect(readTrace(file('1e-3,100,10\n2,5,6\n')).rows).toEqual([
      { arrival: 0.001, input: 100, output: 10 },
      { arrival: 2, input: 5, output: 6 },
    ]);
  });

  it.each([
    ['', /no request in it/],
    ['arrival_s,input,output\n', /no request in it/],
    ['# only a comment\n\n', /no request in it/],
    ['TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n', /line 2 \(azure\): no date/],
    ['{"timestamp": 1, "input_length": 5, "output_length": 6, "hash_ids": ["x"]}\n', /line 1 \(mooncake\): hash_ids/],
    ['{"timestamp": 1, "input_length": 5, "output_length": 6}\n{"timest', /line 2 \(mooncake\)/],
    ['a,b,c\n1,2,3\n', /not arrival_s,input,output nor a trace/],
    ['0,1,1\n0,-4,1\n', /line 2 \(plain\)/],
    ['0,1,1\n2e9,4,1\n', /a request arrives 2\.00e\+9 s after/],
  ])('%j is refused with the reason', (text, message) => {
    expect(() => readTrace(file(text))).toThrow(message);
  });

  it('that is longer than a chunk is read whole', () => {
    const rows = Array.from({ length: 120_000 }, (_, i) => `${i / 10},${(i % 900) + 1},${(i % 70) + 1}`);
    const read = readTrace(file(`${rows.join('\r\n')}\n`)).rows;
    expect(read.length).toBe(rows.length);
    expect(read.at(-1)).toEqual({ arrival: 11_999.9, input: (119_999 % 900) + 1, output: (119_999 % 70) + 1 });
  });
});

describe('otela-plan simulate --trace', () => {
  it('gives prompts that share blocks their prefix from the cache', async () => {
    const { out, log } = await simulate(sample('mooncake.jsonl'));
    expect(log).toMatch(/mooncake, 3 requests/);
    expect(JSON.parse(out).prefixHit).toBeCloseTo((2 * 512) / (1100 + 1700 + 600), 6);
    const own = await simulate(sample('otela.ndjson'), '--trace-model', 'qwen3-8b');
    expect(JSON.parse(own.out).prefixHit).toBeCloseTo(32 / 100, 6);
  });

  it('fails on an empty trace', async () => {
    const { code, log } = await simulate(file(''));
    expect([code, log]).toEqual([2, expect.stringMatching(/no request in it/)]);
  });
});

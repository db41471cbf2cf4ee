import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { TraceStats, traceLineSchema } from '../../../gateway/cli/trace/trace-stats.ts';
import { GATEWAY_MAIN, NODE, ROOT } from '../../support/where.ts';

const START = Date.parse('2026-11-20T10:00:00Z');
const line = (afterMs: number, more: object = {}) =>
  traceLineSchema.parse({
    timestamp: new Date(START + afterMs).toISOString(),
    model: 'org/plain',
    status: 200,
    input_tokens: 100,
    output_tokens: 50,
    first_token_ms: 200,
    total_ms: 1_000,
    attempt: 1,
    ...more,
  });

function statsOf(lines: readonly ReturnType<typeof line>[]) {
  const stats = new TraceStats();
  for (const one of lines) stats.add(one);
  return stats;
}

it('tells tokens by model, most first, and the ratio of output to input', () => {
  const lines = [
    line(0),
    line(1),
    line(2, { model: 'org/big', input_tokens: 10, output_tokens: 1_000, cached_tokens: 4 }),
  ];
  const [big, plain] = statsOf(lines).report();
  expect(big).toMatchObject({
    model: 'org/big',
    inputTokens: 10,
    outputTokens: 1_000,
    outputRatio: 100,
    cachedTokens: 4,
  });
  expect(plain).toMatchObject({ model: 'org/plain', requests: 2, inputTokens: 200, outputRatio: 0.5 });
  expect((big?.share ?? 0) + (plain?.share ?? 0)).toBeCloseTo(1);
});

it('an even stream has no bursts, Poisson has 1, and ten at once each minute have more', () => {
  let seed = 7;
  const random = () => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return (seed + 0.5) / 2 ** 31;
  };
  const pace = (times: readonly number[]) => statsOf(times.map((at) => line(at))).report()[0];
  const even = pace(Array.from({ length: 600 }, (_, n) => n * 1_000));
  expect(even?.burstiness).toBeCloseTo(0);
  expect(even?.peakToMean).toBeCloseTo(1, 1);
  let at = 0;
  const poisson = Array.from({ length: 20_000 }, () => (at += -Math.log(random()) * 1_000));
  expect(pace(poisson)?.burstiness).toBeCloseTo(1, 1);
  // Records in any order, because they arrive in the order in which responses end.
  const bursts = Array.from({ length: 600 }, (_, n) => Math.floor(n / 10) * 60_000 + (n % 10)).toReversed();
  expect(pace(bursts)?.burstiness).toBeGreaterThan(2.5);
});

it('a block counts as shared only behind the same blocks, and only within its model', () => {
  const of = (...prefix_buckets: string[]) => line(0, { prefix_buckets });
  const [stats] = statsOf([of('a', 'b', 'c'), of('a', 'b', 'd'), of('x', 'b', 'c'), of('a', 'b', 'c', 'e')]).report();
  expect(stats).toMatchObject({ blocks: 13, prefixReuse: 5 / 13 });
  const two = statsOf([of('a', 'b'), line(1, { model: 'org/other', prefix_buckets: ['a', 'b'] })]).report();
  expect(two.map(({ prefixReuse }) => prefixReuse)).toEqual([0, 0]);
  expect(statsOf([line(0)]).report()[0]?.prefixReuse).toBeUndefined();
  expect(statsOf([of()]).report()[0]?.prefixReuse).toBeUndefined();
});

it('models that think aloud are told apart, and refused requests have no lengths', () => {
  const thinking = { model: 'org/thinks', reasoning_tokens: 30, first_token_ms: 4_000, total_ms: 9_000 };
  const stats = statsOf([
    line(0),
    line(1, thinking),
    line(2, { status: 429, attempt: 0, requests: 40, output_tokens: 0 }),
    line(3, { status: 500 }),
  ]);
  const [slow, fast] = stats.latencies();
  expect([slow?.kind, slow?.requests, fast?.kind, fast?.requests]).toEqual(['reasoning', 1, 'other', 2]);
  expect(slow?.firstMs.p50).toBeGreaterThan(3_800);
  expect(fast?.firstMs.p99).toBeLessThan(210);
  expect(stats.report().find(({ model }) => model === 'org/plain')).toMatchObject({
    requests: 42,
    refused: 40,
    failed: 1,
  });
});

let directory = '';
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'otela-trace-'));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

function otela(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  return new Promise((resolve) => {
    execFile(NODE, [GATEWAY_MAIN, ...args], (error, out, err) => {
      resolve({ code: z.number().catch(0).parse(error?.code), out, err });
    });
  });
}

it('otela-gateway trace stats FILE prints three tables of a file that was exported before', async () => {
  const file = join(directory, 'trace.ndjson');
  await writeFile(
    file,
    `${[line(0), line(1_000, { reasoning_tokens: 5 })].map((one) => JSON.stringify(one)).join('\n')}\n`,
  );
  const { code, out } = await otela('trace', 'stats', file);
  expect(code).toBe(0);
  expect(out).toMatch(/org\/plain \(reasoning\) +2 +0 +0 +200 +100 +100\.0 % +0\.50/);
  expect(out).toMatch(/no buckets/);
  expect(out).toMatch(/reasoning +2 +/);
  expect(JSON.parse((await otela('trace', 'stats', file, '--json')).out)).toMatchObject({
    requests: 2,
    inputTokens: 200,
  });
});

it('names the column of a published trace that is not as it should be', async () => {
  const file = join(directory, 'bad.jsonl');
  await writeFile(
    file,
    '{"created_at":"2026-01-01 00:00:00","model":"m"}\n{"created_at":"2026-01-01 00:00:01","model":null}\n',
  );
  const { code, err } = await otela('trace', 'stats', file);
  expect([code, err]).toEqual([1, expect.stringMatching(/line 2 is not a line of a trace: model: /)]);
});

it.each([
  ['a file that is not there', ['nowhere.ndjson'], /ENOENT/],
  ['a file of something else', [join(ROOT, 'package.json')], /line 1 is not a line of a trace/],
  ['neither file nor times', [], /trace stats\|plot --from/],
])('%s: said in a line', async (_, args, reason) => {
  const { code, err } = await otela('trace', 'stats', ...args);
  expect(code).not.toBe(0);
  expect(err).toMatch(reason);
  expect(err).not.toMatch(/\n {4}at /);
});

/** Figures from lines of a trace: numbers that can be counted by hand. */
import { expect, test } from 'vitest';
import { LengthRegression } from '../../../gateway/cli/trace/length-regression.ts';
import { sampleSchema } from '../../../gateway/cli/trace/node-samples.ts';
import { FIGURE_NAMES, figuresText, numberOfFigure } from '../../../gateway/cli/trace/paper-figures.ts';
import { readTraceLine } from '../../../gateway/cli/trace/read-trace-line.ts';
import { TraceFigures } from '../../../gateway/cli/trace/trace-figures.ts';
import { zipfTiers } from '../../../gateway/cli/trace/zipf-tiers.ts';
import { traceLine } from '../../../gateway/usage/trace-line.ts';
import type { UsageRow } from '../../../gateway/usage/usage-row.ts';

const DAY = Date.parse('2026-11-20T00:00:00Z');
const line = (more: object, minute = 0) =>
  JSON.stringify({
    timestamp: new Date(DAY + minute * 60_000).toISOString(),
    model: 'm',
    input_tokens: 100,
    output_tokens: 11,
    first_token_ms: 100,
    total_ms: 1_110,
    ...more,
  });

function figuresOf(lines: readonly string[], classed: readonly string[] = []) {
  const figures = new TraceFigures(new Set(classed));
  for (const text of lines) {
    const one = readTraceLine(text);
    if (one !== undefined) figures.add(one);
  }
  return new Map(figures.figures().map((one) => [one.name, one]));
}

const pointsOf = (found: ReturnType<typeof figuresOf>, name: (typeof FIGURE_NAMES)[number], chart = 0, series = 0) =>
  found.get(name)?.charts[chart]?.series[series]?.points ?? [];

test('every figure and table of both papers has its number', () => {
  expect(FIGURE_NAMES.map(numberOfFigure)).toEqual([
    'Figure 1',
    'Table 2',
    'Figure 9 (OpenFabric: Figure 7)',
    'Figure 10 (OpenFabric: Figure 8)',
    'Figure 11 (OpenFabric: Figure 9)',
    'Figure 12',
    'Figure 13 (OpenFabric: Figure 10)',
    'Figure 14 (OpenFabric: Figure 12)',
    'Figure 15 (OpenFabric: Figure 11)',
    'Figure 16 (OpenFabric: Figure 14)',
    'Figure 17 (OpenFabric: Figure 15)',
    'OpenFabric: Figure 13',
  ]);
});

test('the summary counts all requests, and the figures only answered ones', () => {
  const lines = [
    line({ user: 'u' }),
    line({ user: 'v', model: 'n' }, 720),
    line({ user: 'v', model: 'failing', status: 500, output_tokens: 0 }),
    line({ model: 'refused', attempt: 0, status: 429, requests: 40, input_tokens: 0, output_tokens: 0 }),
  ];
  const found = figuresOf(lines);
  expect(found.get('summary')?.facts).toEqual({
    days: 0.5,
    models: 4,
    users: 2,
    requests: 43,
    'requests that no engine received': 40,
    'failed requests': 1,
    'input tokens': 300,
    'output tokens': 22,
    'tokens in all': 322,
  });
  expect(Object.keys(found.get('tokens-by-model')?.facts ?? {})).toContain('m: share of tokens');
  expect(Object.keys(found.get('tokens-by-model')?.facts ?? {})).not.toContain('failing: share of tokens');
});

test('models are ranked by their tokens, with tiers of Zipf’s law', () => {
  const of = (model: string, tokens: number) => line({ model, input_tokens: tokens - 11 });
  const found = figuresOf([of('a', 1_000), of('b', 500), of('c', 333), of('d', 100), of('e', 30), of('f', 12)]);
  expect(found.get('tokens-by-model')?.facts['a: share of tokens']).toBeCloseTo(1_000 / 1_975);
  expect(pointsOf(found, 'tokens-by-model', 0, 1)).toEqual([[2, 500]]);
  // 1,000 / r up to rank 3, then a tier that falls with the fifth power.
  const { tiers, r2 } = zipfTiers([1, 2, 3, 4, 5, 6].map((r) => (r <= 3 ? 1_000 / r : 100 * (4 / r) ** 5)));
  expect(tiers[0]).toMatchObject({ from: 1, to: 3 });
  expect(tiers.map(({ alpha }) => Number(alpha.toFixed(6)))).toEqual([1, 5]);
  expect(r2).toBeGreaterThan(0.99);
  expect(zipfTiers([5])).toEqual({ tiers: [], r2: 0 });
});

test('burstiness is of active minutes alone: a silent night changes nothing', () => {
  const even = [line({}, 0), line({}, 1), line({}, 600)];
  expect(figuresOf(even).get('burstiness')?.facts).toEqual({
    'm: peak over mean': 1,
    'm: deviation over mean': 0,
    'm: active minutes': 3,
  });
  const bursty = [...even, line({ input_tokens: 889 }, 1)];
  expect(figuresOf(bursty).get('burstiness')?.facts['m: peak over mean']).toBeCloseTo((3 * 1_011) / 1_233);
});

test('burstiness over time begins at the first request of each model, and silent hours are zero', () => {
  const found = figuresOf([line({}, 60), line({}, 61), line({}, 240), line({ model: 'later' }, 600)]);
  // The mean active minute has 111 tokens. The first hour has two such minutes, the last one is a single minute.
  expect(pointsOf(found, 'burstiness-over-time')).toEqual([
    [0, 2 / 60],
    [1, 0],
    [2, 0],
    [3, 1],
  ]);
  expect(pointsOf(found, 'burstiness-over-time', 0, 1)).toEqual([[0, 1]]);
});

test('lengths are of the four most asked models', () => {
  const lines = ['a', 'b', 'c', 'd', 'e'].flatMap((model, n) =>
    Array.from({ length: 100 - n }, (_, i) => line({ model, output_tokens: i + 1 })),
  );
  const { facts = {} } = figuresOf(lines).get('lengths') ?? {};
  expect((facts as Record<string, number>)['a, output: p95']).toBeCloseTo(95, -1);
  expect(Object.keys(facts)).toHaveLength(4 * 2 * 3);
  expect(Object.keys(facts)).not.toContain('e, output: p95');
});

test('the share of output tokens is the mean of requests, by hour, and by minute on the busiest day', () => {
  const half = { input_tokens: 10, output_tokens: 10 };
  const quarter = { input_tokens: 30, output_tokens: 10 };
  const nextDay = 24 * 60;
  const found = figuresOf([
    line(half, 1),
    line(quarter, 2),
    line(half, nextDay),
    line(half, nextDay),
    line(half, nextDay + 5),
  ]);
  expect(pointsOf(found, 'output-share')).toEqual([
    [0, 0.375],
    [1, 0.5],
  ]);
  expect(pointsOf(found, 'output-share', 0, 1)[0]).toEqual([0, 0.5]);
  expect(pointsOf(found, 'output-share', 1)).toEqual([
    [0, 0.5],
    [5 / 60, 0.5],
  ]);
  expect(found.get('output-share')?.facts).toMatchObject({
    'mean of all requests': 0.45,
    'of all tokens': 50 / 120,
    'requests of the busiest day': 3,
  });
});

test('reusable prefixes are the mean share of a prompt’s blocks, over the days of the model', () => {
  const of = (minute: number, ...prefix_buckets: string[]) => line({ prefix_buckets }, minute);
  const found = figuresOf([
    of(0, 'a', 'b'),
    of(1, 'a', 'c'),
    of(2 * 24 * 60, 'a', 'b', 'c', 'd'),
    of(4 * 24 * 60, 'a', 'b'),
  ]);
  expect(pointsOf(found, 'prefix-reuse')).toEqual([
    [0, 25],
    [50, 50],
    [100, 100],
  ]);
  expect(found.get('prefix-reuse')?.facts).toMatchObject({ 'm: first day': 0.25, 'm: last day': 1 });
  expect(figuresOf([line({})]).has('prefix-reuse')).toBe(false);
});

test('latency and time per token by class: the operator’s class counts, then the engine’s reasoning tokens', () => {
  const lines = [
    line({}),
    line({ model: 'thinks', reasoning_tokens: 5, total_ms: 9_000 }),
    line({ model: 'classed', total_ms: 5_000 }),
  ];
  const facts: Record<string, number> = figuresOf(lines, ['classed']).get('latency')?.facts ?? {};
  expect(facts['whole response, other: p50']).toBeCloseTo(1.1, 1);
  expect(facts['whole response, reasoning: p95']).toBeGreaterThan(8);
  expect(figuresOf(lines).get('latency')?.facts['whole response, other: p95']).toBeGreaterThan(4);
  // 1,110 ms over 111 tokens.
  expect(facts['time per token, other: p50']).toBeCloseTo(10, 0);
  expect(facts['output, other: p50']).toBeCloseTo(11, 0);
});

test('the length of a response is predicted well by its user, badly by the mean, and the regression learns which', () => {
  const lines = Array.from({ length: 3_000 }, (_, n) =>
    line({ user: `u${n % 2}`, output_tokens: n % 2 === 0 ? 10 : 1_000 }),
  );
  const facts: Record<string, number> = figuresOf(lines).get('predictability')?.facts ?? {};
  expect(facts["user's last response: within 25 %"]).toBe(1);
  expect(facts["user's last response: mean absolute error, tokens"]).toBe(0);
  expect(facts['mean of the model: within 25 %']).toBe(0);
  expect(facts['mean of the model: mean absolute error, tokens']).toBeCloseTo(495, -1);
  expect(facts['regression: mean absolute error, tokens']).toBeLessThan(30);
});

test('the regression predicts nothing from few values, and finds a power law', () => {
  const regression = new LengthRegression(2);
  expect(regression.predict([1, 1])).toBeUndefined();
  for (let n = 1; n <= 2_000; n++) regression.learn([n % 97, n % 13], 3 * (1 + (n % 97)) ** 0.5 * (1 + (n % 13)) - 1);
  expect(regression.predict([80, 5])).toBeCloseTo(3 * 81 ** 0.5 * 6 - 1, 0);
  // Two equal features must not make the equations unsolvable.
  const same = new LengthRegression(2);
  for (let n = 1; n <= 200; n++) same.learn([n, n], n);
  expect(same.predict([50, 50])).toBeCloseTo(50, 0);
});

const sample = (hour: number, more: object = {}) =>
  sampleSchema.parse({
    timestamp: new Date(DAY + hour * 3_600_000).toISOString(),
    session: 's',
    gpus: 4,
    busy: true,
    kv_use: null,
    power_w: null,
    ...more,
  });

function samplesOf(samples: readonly ReturnType<typeof sample>[], classed: readonly string[] = []) {
  const figures = new TraceFigures(new Set(classed));
  for (const one of samples) figures.addSample(one);
  return new Map(figures.figures().map((one) => [one.name, one]));
}

test('idle GPUs are told by type, and beside them those that clusters report as free', () => {
  const cluster = { timestamp: new Date(DAY).toISOString(), cluster: 'alps', gpu: 'GH200', idle_gpus: 12 };
  const found = samplesOf([
    sample(0, { gpu: 'GH200' }),
    sample(0, { session: 't', gpu: 'A100', busy: false }),
    sampleSchema.parse(cluster),
    sampleSchema.parse({ ...cluster, gpu: 'A100', idle_gpus: 3 }),
    sample(1, { gpu: 'GH200', busy: false }),
    sample(1, { session: 't', gpu: 'A100', busy: false }),
  ]);
  expect(found.get('idle-gpus')?.facts).toEqual({
    idle_share: 0.75,
    'idle A100, mean': 4,
    'idle GH200, mean': 2,
    'free in clusters, A100, mean': 3,
    'free in clusters, GH200, mean': 12,
  });
});

test('KV cache and power are told by class, and energy per token only if the tokens are known', () => {
  const thinks = { models: ['thinks'], gpu: 'GH200', kv_use: 0.75, power_w: 1_000, tokens_per_second: 1_000 };
  const plain = { session: 't', models: ['plain'], gpu: 'A100', kv_use: 0.25, power_w: 500 };
  const found = samplesOf(
    [0, 1, 2].flatMap((hour) => [sample(hour, thinks), sample(hour, plain)]),
    ['thinks'],
  );
  expect(found.get('kv-use')?.facts).toEqual({ 'mean, reasoning': 0.75, 'mean, other': 0.25 });
  expect(found.get('energy')?.facts).toEqual({
    mean_w: 1_500,
    kwh: 3,
    'reasoning, GH200: kwh': 2,
    // 2 kWh for 2 h at 1,000 tokens a second.
    'reasoning, GH200: kwh per million output tokens': 2 / 7.2,
    'other, A100: kwh': 1,
  });
});

test('a gap in the samples counts as an hour at most, and without power no energy is told', () => {
  const found = samplesOf([0, 1, 2, 14].map((hour) => sample(hour, { power_w: 1_000, models: ['m'] })));
  expect(found.get('energy')?.facts.kwh).toBe(3);
  expect([...samplesOf([sample(0)]).keys()]).toEqual(['idle-gpus']);
  expect(new TraceFigures(new Set()).figures()).toEqual([]);
});

test('a node that is sampled every ten seconds has the GPUs and the energy of one that is sampled every minute', () => {
  const every = (seconds: number) => {
    const samples = Array.from({ length: 3_600 / seconds + 1 }, (_, n) => n * seconds).flatMap((second) =>
      ['a', 'b'].map((session) => sample(second / 3_600, { session, power_w: 1_000, kv_use: 0.5, models: ['m'] })),
    );
    const found = samplesOf(samples);
    return [[...found.values()].map(({ facts }) => facts), pointsOf(found, 'idle-gpus')[0]];
  };
  expect(every(10)).toEqual(every(60));
  expect(every(60)[1]).toEqual([0, 8]);
});

test('a missing figure is named with what it needs, and a model’s name cannot forge a line', () => {
  const found = figuresOf([line({ model: 'm\n\u001b[31mFigure 99' })]);
  const text = figuresText([...found.values()]);
  expect(text).toMatch(
    /Figure 16 \(OpenFabric: Figure 14\): Use of the KV cache\n {2}no data\. It needs the output of/,
  );
  expect(text).toMatch(/Figure 14 .*\n {2}no data\. It needs prefix buckets/);
  expect(text).not.toMatch(/^Figure 99/m);
  expect(text).not.toContain('\u001b');
});

test('the published trace: its columns, its missing counts and times, its buckets', () => {
  const published = {
    id: '1',
    status: 'DEFAULT',
    created_at: '2025-03-01 10:00:00.5',
    finished_at: '2025-03-01 10:00:02.5',
    model: 'Qwen/Qwen3-32B',
    model_parameters: { temperature: 'x' },
    reported_token_input: -1,
    reported_token_output: 40,
    token_count: 64,
    bucket_ids: [3, 9],
  };
  expect(readTraceLine(JSON.stringify(published))).toMatchObject({
    timestamp: '2025-03-01T10:00:00.5Z',
    status: 200,
    input_tokens: 64,
    output_tokens: 40,
    total_ms: 2_000,
    prefix_buckets: ['3', '9'],
  });
  const read = (more: object) => readTraceLine(JSON.stringify({ ...published, ...more }));
  expect(read({ created_at: '2025-03-01T10:00:00+00' })?.timestamp).toBe('2025-03-01T10:00:00+00:00');
  expect(read({ status: 'ERROR', reported_token_output: -1 })).toMatchObject({ status: 500, output_tokens: 0 });
  expect(read({ finished_at: '\\N' })).toMatchObject({ total_ms: null });
  expect(read({ created_at: '\\N' })).toBeUndefined();
  expect(() => readTraceLine(JSON.stringify({ created_at: 5 }))).toThrow();
  expect(() => readTraceLine('{"timestamp":"x"}')).toThrow();
});

test('an export in the published form has the same figures as our own, and no user, key or provider', () => {
  const row = (n: number, more: Partial<UsageRow> = {}): UsageRow => ({
    session: 'session-id',
    stream: n,
    at: DAY + n * 45_000,
    request: `request-${n}`,
    attempt: 1,
    provider: 'lab',
    key: 'key_1',
    user: 'user_1',
    project: 'proj_1',
    model: n % 3 === 0 ? 'private' : 'open',
    endpoint: 1,
    streamed: true,
    status: 200,
    prompt: 50 + n,
    completion: 10 + (n % 7),
    cached: 0,
    reasoning: 0,
    firstMs: 50,
    totalMs: 1_000 + n,
    aborted: false,
    estimated: false,
    complete: true,
    bytes: 1,
    traced: true,
    sampling: { temperature: 0.5 },
    buckets: ['a', 'b', `c${n % 5}`],
    ...more,
  });
  const rows = [
    ...Array.from({ length: 60 }, (_, n) => row(n)),
    row(60, { status: 500, totalMs: null }),
    row(61, { attempt: 0, error: 'server_is_overloaded', status: 503 }),
  ];
  const question = { from: 0, to: 0, secret: 's', privateModels: new Set(['private']) };
  const exported = (format: 'ndjson' | 'published') => rows.map((one) => traceLine(one, { ...question, format }));
  const published = exported('published');
  expect(published.join('')).not.toMatch(/user_1|key_1|proj_1|lab|request-|session-id|private/);
  expect(JSON.parse(published[0] ?? '')).toMatchObject({
    status: 'DEFAULT',
    created_at: '2026-11-19T23:59:59.000Z',
    finished_at: '2026-11-20T00:00:00.000Z',
    model_parameters: { temperature: 0.5 },
    reported_token_input: 50,
    bucket_ids: ['a', 'b', 'c0'],
  });
  expect(JSON.parse(published[60] ?? '')).toMatchObject({
    status: 'ERROR',
    finished_at: '\\N',
    reported_token_input: -1,
    reported_token_output: -1,
  });
  // A request that no engine received is in no published trace.
  expect(published[61]).toBe('');
  const [own, theirs] = [figuresOf(exported('ndjson')), figuresOf(published.filter((one) => one !== ''))];
  for (const name of FIGURE_NAMES.filter((one) => one !== 'summary' && one !== 'predictability'))
    expect([name, theirs.get(name)?.facts]).toEqual([name, own.get(name)?.facts]);
});

/** Figures from lines of a trace: numbers that can be counted by hand. */
import { expect, test } from 'vitest';
import { readTraceLine } from '../../../gateway/cli/trace/read-trace-line.ts';
import { TraceFigures } from '../../../gateway/cli/trace/trace-figures.ts';

const DAY = Date.parse('2026-11-20T00:00:00Z');
const line = (more: object, minute = 0) =>
  JSON.stringify({
    timestamp: new Date(DAY + minute * 60_000).toISOString(),
    model: 'm',
    input_tokens: 100,
    output_tokens: 11,
    first_token_ms: 100,
    total_ms: 1_100,
    ...more,
  });

function figuresOf(lines: readonly string[], classed: readonly string[] = []) {
  const figures = new TraceFigures(new Set(classed));
  for (const one of lines) figures.add(readTraceLine(one));
  return new Map(figures.figures().map((one) => [one.name, one]));
}

test('tokens by model, input and output, and the figures’ names', () => {
  const found = figuresOf([line({}), line({ model: 'n', input_tokens: 300, output_tokens: 33 })]);
  expect([...found.keys()]).toEqual([
    'tokens-by-model',
    'burstiness',
    'input-and-output',
    'lengths',
    'latency',
    'time-per-token',
    'predictability',
  ]);
  expect(found.get('tokens-by-model')?.facts).toEqual({ n: 0.75, m: 0.25 });
  expect(found.get('input-and-output')?.facts.output_per_input).toBeCloseTo(0.11);
  expect(found.get('input-and-output')?.charts[0]?.series).toEqual([
    { name: 'input', points: [[0, 400]] },
    { name: 'output', points: [[0, 44]] },
  ]);
});

test('a day without a line had no requests: no line is drawn over it', () => {
  const found = figuresOf([line({}), line({}, 3 * 24 * 60)]);
  for (const name of ['tokens-by-model', 'input-and-output'])
    expect(found.get(name)?.charts[0]?.series[0]?.points.map(([day, n]) => [day, n > 0])).toEqual([
      [0, true],
      [1, false],
      [2, false],
      [3, true],
    ]);
});

test('burstiness is of active minutes alone: a silent night changes nothing', () => {
  const even = [line({}, 0), line({}, 1), line({}, 600)];
  expect(figuresOf(even).get('burstiness')?.facts).toMatchObject({
    'm: peak over mean': 1,
    'm: deviation over mean': 0,
    'm: active minutes': 3,
  });
  const bursty = [...even, line({ input_tokens: 889 }, 1)];
  expect(figuresOf(bursty).get('burstiness')?.facts['m: peak over mean']).toBeCloseTo(2.45, 1);
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
  // (1,100 − 100) ms over ten tokens after the first.
  expect(figuresOf(lines).get('time-per-token')?.facts['time per token, other: p50']).toBeCloseTo(100, -1);
});

test('lengths have their P95', () => {
  const lines = Array.from({ length: 100 }, (_, n) => line({ output_tokens: n + 1 }));
  expect(figuresOf(lines).get('lengths')?.facts['output, other: p95']).toBeCloseTo(95, -1);
});

test('how well lengths are foretold: by the asking user always, by the model’s mean badly', () => {
  const lines = Array.from({ length: 100 }, (_, n) =>
    line({ user: `u${n % 2}`, output_tokens: n % 2 === 0 ? 10 : 1_000 }),
  );
  const facts: Record<string, number> = figuresOf(lines).get('predictability')?.facts ?? {};
  expect(facts["user's last response: within 25 %"]).toBe(1);
  expect(facts['mean of the model: within 25 %']).toBe(0);
});

test('idle GPUs, KV cache and energy come from samples of nodes', () => {
  const figures = new TraceFigures(new Set());
  const sample = (hour: number, busy: boolean, power: number | null = 1_000) =>
    figures.addSample({
      timestamp: new Date(DAY + hour * 3_600_000).toISOString(),
      session: 's',
      gpus: 4,
      busy,
      kv_use: busy ? 0.5 : null,
      power_w: power,
    });
  sample(0, true);
  sample(1, false);
  sample(2, false);
  // There was no sample for half a day: only an hour of it counts.
  sample(14, true);
  const found = new Map(figures.figures().map((one) => [one.name, one]));
  expect(found.get('idle-gpus')).toMatchObject({ facts: { idle_share: 0.5 } });
  expect(found.get('kv-use')?.facts.mean).toBe(0.5);
  expect(found.get('energy')?.facts).toEqual({ mean_w: 1_000, kwh: 3 });
});

test('without power no energy is told, and of an empty trace nothing', () => {
  const figures = new TraceFigures(new Set());
  expect(figures.figures()).toEqual([]);
  figures.addSample({
    timestamp: new Date(DAY).toISOString(),
    session: 's',
    gpus: 1,
    busy: false,
    kv_use: null,
    power_w: null,
  });
  expect(figures.figures().map(({ name }) => name)).toEqual(['idle-gpus']);
});

test('the published trace: its columns, its missing counts, its buckets', () => {
  const published = {
    id: '1',
    status: 'success',
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
  expect(readTraceLine(JSON.stringify({ ...published, created_at: '2025-03-01T10:00:00+00' })).timestamp).toBe(
    '2025-03-01T10:00:00+00:00',
  );
  expect(readTraceLine(JSON.stringify({ ...published, status: 'error', reported_token_output: -1 }))).toMatchObject({
    status: 500,
    output_tokens: 0,
  });
  expect(() => readTraceLine(JSON.stringify({ created_at: 5 }))).toThrow();
  expect(() => readTraceLine('{"timestamp":"x"}')).toThrow();
});

const sampleAt = (ms: number, session: string) => ({
  timestamp: new Date(DAY + ms).toISOString(),
  session,
  gpus: 4,
  busy: session === 'a',
  kv_use: 0.5,
  power_w: 1_000,
});

test('a node that is sampled every ten seconds has the GPUs and the energy of one that is sampled every minute', () => {
  const every = (seconds: number) => {
    const figures = new TraceFigures(new Set());
    for (let second = 0; second <= 3_600; second += seconds)
      for (const session of ['a', 'b']) figures.addSample(sampleAt(second * 1_000, session));
    const found = figures.figures();
    return [found.map(({ facts }) => facts), found[0]?.charts[0]?.series[0]?.points[0]];
  };
  expect(every(10)).toEqual(every(60));
  expect(every(60)[1]).toEqual([0, 8]);
});

import { expect, test } from 'vitest';
import { AGENT_FAMILIES } from '../../../agent/observe/metric-families.ts';
import { FAMILIES } from '../../../gateway/observe/metric-families.ts';
import type { Family, HistogramFamily } from '../../../shared/metrics/metric-family.ts';
import { METRIC_OVERFLOW, MetricStore, OTHER, SERIES_MAX } from '../../../shared/metrics/metric-store.ts';
import { exposition } from '../../../shared/metrics/prometheus-exposition.ts';
import { flawOf } from './flaw.ts';

const REQUESTS: Family = { kind: 'counter', name: 'requests_total', help: 'Requests.', labels: ['model', 'code'] };
const NOW: Family = { kind: 'gauge', name: 'now', help: 'One line\nand a \\ more.', labels: [] };
const TIME: HistogramFamily = {
  kind: 'histogram',
  name: 'time_seconds',
  help: 'Time.',
  labels: ['op'],
  bounds: [1, 2],
};
const LONELY: Family = { kind: 'counter', name: 'lonely_total', help: 'Never.', labels: [] };

test('counters, gauges and histograms are written as Prometheus reads them', () => {
  const metrics = new MetricStore();
  metrics.count(REQUESTS, ['m', '200']);
  metrics.count(REQUESTS, ['m', '200'], 2);
  metrics.count(REQUESTS, ['m', '500'], 0);
  metrics.set(NOW, [], 7);
  metrics.set(NOW, [], 3.5);
  for (const value of [0.5, 1, 1.5, 9, Number.NaN, -1]) metrics.observe(TIME, ['chat'], value);
  expect(exposition([REQUESTS, NOW, TIME, LONELY], metrics)).toBe(`# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{model="m",code="200"} 3
# HELP now One line\\nand a \\\\ more.
# TYPE now gauge
now 3.5
# HELP time_seconds Time.
# TYPE time_seconds histogram
time_seconds_bucket{op="chat",le="1"} 2
time_seconds_bucket{op="chat",le="2"} 3
time_seconds_bucket{op="chat",le="+Inf"} 4
time_seconds_sum{op="chat"} 12
time_seconds_count{op="chat"} 4
# HELP lonely_total Never.
# TYPE lonely_total counter
lonely_total 0
`);
});

test('no label value can end its line', () => {
  const metrics = new MetricStore();
  metrics.count(REQUESTS, ['a"b\\c\nd', '__proto__']);
  metrics.count(REQUESTS, ['x\u001fy', '']);
  const [, , first, second, ...none] = exposition([REQUESTS], metrics).trimEnd().split('\n');
  expect(first).toBe('requests_total{model="a\\"b\\\\c\\nd",code="__proto__"} 1');
  expect(second).toBe('requests_total{model="x?y",code=""} 1');
  expect(none).toEqual([]);
});

test('what several places counted adds up, and what was taken is counted once', () => {
  const here = new MetricStore();
  const sum = new MetricStore();
  for (let round = 1; round <= 3; round++) {
    here.count(REQUESTS, ['m', '200']);
    here.observe(TIME, ['chat'], round);
    sum.merge(here.take());
    expect(here.empty).toBe(true);
    sum.merge(here.take());
  }
  expect([...sum.samples(REQUESTS)]).toEqual([{ labels: ['m', '200'], value: 3 }]);
  expect([...sum.samples(TIME)]).toEqual([{ labels: ['chat'], value: [1, 1, 1, 6] }]);
  // Buckets of another version cannot be added.
  sum.merge({ [TIME.name]: [{ key: 'chat', value: [5, 5] }] });
  expect([...sum.samples(TIME)]).toEqual([{ labels: ['chat'], value: [5, 5] }]);
});

test('however many values labels take, a family keeps a bounded number of series, and no count is lost or silently moved', () => {
  const many = new MetricStore();
  const merged = new MetricStore();
  for (let n = 0; n < SERIES_MAX + 500; n++) {
    many.count(REQUESTS, [`model-${n}`, 'x'.repeat(1_000)]);
    merged.merge({ [REQUESTS.name]: [{ key: `model-${n}\u001f200`, value: 1 }] });
  }
  for (const metrics of [many, merged]) {
    const samples = [...metrics.samples(REQUESTS)];
    expect(samples).toHaveLength(SERIES_MAX + 1);
    expect(samples.at(-1)).toEqual({ labels: [OTHER, OTHER], value: 500 });
    expect([...metrics.samples(METRIC_OVERFLOW)]).toEqual([{ labels: [REQUESTS.name], value: 500 }]);
  }
  // A store does not count an overflow that another store has counted.
  const sum = new MetricStore();
  sum.merge(many.state());
  expect([...sum.samples(METRIC_OVERFLOW)]).toEqual([{ labels: [REQUESTS.name], value: 500 }]);
  expect(exposition([REQUESTS], many).length).toBeLessThan(SERIES_MAX * 200);
});

test('a table of families that Prometheus would refuse is told from one that it takes', () => {
  for (const families of [[REQUESTS, NOW, TIME, LONELY], FAMILIES, AGENT_FAMILIES])
    expect(flawOf(families)).toBeUndefined();
  const wrong: Family[] = [
    { ...REQUESTS, name: 'requests' },
    { ...REQUESTS, name: 'requests-total' },
    { ...REQUESTS, labels: ['le'] },
    { ...NOW, help: '' },
    { ...TIME, bounds: [2, 1] },
    { ...NOW, kind: 'histogram' },
  ];
  for (const family of wrong) expect(flawOf([family]), family.name).toBeDefined();
  expect(flawOf([NOW, NOW])).toBeDefined();
});

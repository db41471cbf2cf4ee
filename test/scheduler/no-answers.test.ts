/** A configuration that never answered has no latency, so it is not the fastest of all. */
import { expect, it } from 'vitest';
import { barsSvg, barsText } from '../../scheduler/cli/bar-chart.ts';
import { comparisonText, panels } from '../../scheduler/cli/compare-command.ts';
import { predict } from '../../scheduler/planner/predict-plan.ts';
import type { Plan } from '../../scheduler/planner/types.ts';
import { distribution } from '../../scheduler/simulator/latency-distribution.ts';

it('nothing has no distribution', () => {
  expect(Object.values(distribution(new Float64Array()))).toEqual(Array(6).fill(Number.NaN));
  expect(distribution(Float64Array.of(2, 1))).toMatchObject({ mean: 1.5, p50: 1, max: 2 });
});

it('a plan that answers nothing is never the best of a comparison', () => {
  const plan = { placements: [], models: [], servedShare: 0 } as unknown as Plan;
  const prediction = predict(plan, [], [], {} as Parameters<typeof predict>[3], 1);
  const none = { name: 'none', plan, prediction };
  const good = { name: 'good', plan, prediction: { ...prediction, requestsPerS: 1, meanS: 2, p95S: 3 } };
  const text = comparisonText([none, good]);
  expect(text).toMatch(/^none +0\.00 +- +- /m);
  const [, latency] = panels([none, good]);
  if (latency === undefined) throw new Error('no panel of latencies');
  expect(barsText([latency])).toMatch(/none +-\n +good +█{40} 2\.000/);
  expect(barsSvg([latency])).toMatch(/font-weight="bold">2\.00</);
  expect(barsSvg([latency])).not.toMatch(/NaN/);
});

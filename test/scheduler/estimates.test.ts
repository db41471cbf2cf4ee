import { expect, it } from 'vitest';
import { seededRandom } from '../../scheduler/simulator/random.ts';
import { OptionTable } from '../../scheduler/solver/option-table.ts';
import type { Demand, Option } from '../../scheduler/solver/planning-problem.ts';
import { drawInstance } from './support/instances.ts';
import { catalogue, planOptions } from './support/small.ts';

/** Fraction of the options that is simulated, for a planning problem of 100 models and 12 kinds of GPU. */
const SHARE = 0.08;

const { pools, demands } = drawInstance(catalogue, 100, 12, 1, 0.1);

/**
 * Options that a simulation finds to be better than estimated; `share` of the options that `wanted` accepts are
 * simulated.
 */
function tooGood(asked: readonly Demand[], share: number, wanted: (option: Option) => boolean) {
  const random = seededRandom(3);
  const broken: string[] = [];
  let tried = 0;
  const table = new OptionTable(
    asked.map((demand, i) => ({ ...demand, cv: [1, 0.3, 2, 4][i % 4] ?? 1 })),
    pools,
    planOptions(),
  );
  for (const option of table.options) {
    if (!wanted(option) || random() > share) continue;
    tried++;
    table.optimistic = true;
    table.simulateOption(option, true);
    if (!table.optimistic)
      broken.push(`${asked[option.demand]?.model.id} on ${option.gpus} × ${pools[option.pool]?.gpu.id}`);
  }
  return { tried, broken };
}

it('no simulation finds more than its estimate allows: bounds rest on that', () => {
  const { tried, broken } = tooGood(demands, SHARE, () => true);
  expect(tried).toBeGreaterThan(100);
  expect(broken).toEqual([]);
});

it('nor does that of a disaggregated pair, with long prompts and short ones', () => {
  const asked = demands.slice(0, 40).map((demand, i): Demand => {
    const long = i % 2 === 0 && demand.model.context >= 16_000;
    const parallelism = ['disaggregated'] as const;
    return { ...demand, parallelism, ...(long ? { input: { kind: 'lognormal', mean: 6000, sd: 2000 } } : {}) };
  });
  const { tried, broken } = tooGood(asked, SHARE / 2, ({ spread }) => spread?.prefill !== undefined);
  expect(tried).toBeGreaterThan(50);
  expect(broken).toEqual([]);
});

import { expect, it } from 'vitest';
import { drawInstance } from '../../scheduler/paper/instances.ts';
import { seeded } from '../../scheduler/serving/random.ts';
import { OptionTable } from '../../scheduler/solver/options.ts';
import { catalogue, planOptions } from './support/small.ts';

/** Of the options of a planning problem of 100 models and 12 kinds of GPU, so many are simulated. */
const SHARE = 0.08;

it('no simulation finds more than its estimate allows: bounds rest on that', () => {
  const random = seeded(3);
  const broken: string[] = [];
  let tried = 0;
  const { pools, demands } = drawInstance(catalogue, 100, 12, 1, 0.1);
  const table = new OptionTable(
    demands.map((demand, i) => ({ ...demand, cv: [1, 0.3, 2, 4][i % 4] ?? 1 })),
    pools,
    planOptions(),
  );
  for (const option of table.options) {
    if (random() > SHARE) continue;
    tried++;
    table.optimistic = true;
    table.simulateOption(option, true);
    if (!table.optimistic)
      broken.push(`${demands[option.demand]?.model.id} on ${option.gpus} × ${pools[option.pool]?.gpu.id}`);
  }
  expect(tried).toBeGreaterThan(100);
  expect(broken).toEqual([]);
}, 120_000);

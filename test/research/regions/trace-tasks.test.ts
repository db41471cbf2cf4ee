import { describe, expect, it } from 'vitest';
import { latencyGreedy } from '../../../research/regions/baselines/latency-greedy.ts';
import { simulateRegions } from '../../../research/regions/simulator/simulate.ts';
import { traceTasks } from '../../../research/regions/simulator/trace-tasks.ts';
import { SLOT_S } from '../../../research/regions/simulator/workload.ts';
import { readTrace } from '../../../scheduler/traces/read-trace.ts';
import { lineWorld } from './support.ts';

describe('tasks of a trace', () => {
  const world = lineWorld(3);
  const options = { slotS: SLOT_S, seed: 1 };

  it('come at its times, with its lengths as work, and each is served', async () => {
    const { rows } = readTrace('test/scheduler/data/traces/azure-2023.csv');
    const found = await simulateRegions({
      world,
      source: traceTasks(rows, world, options),
      policy: latencyGreedy(),
      slots: 10,
      slotS: SLOT_S,
    });
    expect(found).toMatchObject({ arrived: rows.length, completed: rows.length });
  });

  it('are of the type that their lengths make them', () => {
    const rows = [
      { arrival: 50, input: 4_000, output: 10 },
      { arrival: 1, input: 10, output: 1_000 },
      { arrival: 2, input: 10, output: 10 },
    ];
    const source = traceTasks(rows, world, options);
    const tasks = [source.next(), source.next(), source.next()];
    expect(tasks.map((task) => task?.type)).toEqual([1, 2, 0]);
    expect(tasks[0]?.workS).toBeCloseTo(10 * 1e-4 + 1_000 * 0.0125, 9);
    expect(source.next()).toBeUndefined();
    expect(
      source
        .expected(1)
        .flat()
        .reduce((sum, count) => sum + count, 0),
    ).toBe(1);
  });

  it('without a time are refused', () => {
    expect(() => traceTasks([{ arrival: Number.NaN, input: 1, output: 1 }], world, options)).toThrow(
      /request 1 of the trace/,
    );
  });
});

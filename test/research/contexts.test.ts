import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { A10, SITE, TITAN_X_PASCAL } from '../../research/contexts/gpus.ts';
import { simulateWorkers, type Worker } from '../../research/contexts/simulate.ts';
import { figure4, figure4Svg, histogram } from '../../research/papers/context/all-runs.ts';
import { evictionRows, oursRows, taskRows, timeRows, times } from '../../research/papers/context/claims.ts';
import { leavingRun, PV6_GPUS } from '../../research/papers/context/runs.ts';

describe('the paper’s runs pv0 to pv6', () => {
  const found = times();

  it.each(
    [...timeRows(found), ...evictionRows(), ...taskRows(), ...oursRows(found)].map((row) => [row.claim, row] as const),
  )('%s', (_, row) => {
    expect(row, `${row.ours} ${row.unit}, allowed ${row.band?.join(' to ')}`).toMatchObject({ holds: true });
  });

  it('are 21 in Figure 4, each with its time and its mean workers', () => {
    const runs = figure4(1);
    expect(new Set(runs.map(({ name }) => name)).size).toBe(21);
    const of = (name: string) => runs.find((one) => one.name === name);
    expect(of('pv0')?.workers).toBe(1);
    expect(of('pv4_100')?.workers).toBeCloseTo(20);
    // The last worker of 186 joins after 185 s.
    expect(of('pv6')?.workers).toBeGreaterThan(140);
    expect(of('pv6')?.workers).toBeLessThan(186);
    expect(figure4Svg(runs).match(/<rect/g)).toHaveLength(1 + 2 * 21);
  });

  it('have histograms of task times, Figure 5, whose shares add up to all tasks', () => {
    const tasksS = Float64Array.from([0.0008, 0.3, 0.31, 5, 60]);
    const bins = histogram({ tasksS });
    const shares = bins.filter((_, i) => i % 2 === 0).map(([, percent]) => percent);
    expect(shares.reduce((sum, one) => sum + one, 0)).toBeCloseTo(100);
    expect(Math.max(...shares)).toBeCloseTo(40);
    for (const s of tasksS)
      expect(bins.some(([from], i) => i % 2 === 0 && from <= s && s < (bins[i + 1]?.[0] ?? 0))).toBe(true);
  });

  it('end where GPUs are taken back, with every inference done once', () => {
    const result = simulateWorkers(leavingRun(PV6_GPUS, 1));
    expect(result.done).toBe(150_000);
    expect(result.lost).toBeGreaterThan(0);
  });

  it('has 427 GPUs at its site', () => {
    expect(SITE.reduce((sum, { count }) => sum + count, 0)).toBe(427);
  });
});

describe('the simulation of contexts', () => {
  const worker = fc.record({
    gpu: fc.constantFrom(A10, TITAN_X_PASCAL),
    joinS: fc.nat(500),
    leaveS: fc.integer({ min: 1, max: 3_000 }),
  });
  const engine = fc.option(
    fc.record({ window: fc.integer({ min: 1, max: 64 }), speedup: fc.constantFrom(1, 4, 8), flushS: fc.constant(1) }),
    { nil: undefined },
  );

  it('does every inference exactly once while one worker stays, whatever is evicted', () => {
    fc.assert(
      fc.property(
        fc.array(worker, { maxLength: 8 }),
        engine,
        fc.integer({ min: 1, max: 700 }),
        fc.nat(99),
        (evicted, engine, batch, seed) => {
          const workers: Worker[] = [...evicted, { gpu: A10, joinS: 0 }];
          const work = { inferences: 2_000, empty: 30 };
          const result = simulateWorkers({
            work,
            workers,
            policy: 'pervasive',
            batch,
            seed,
            ...(engine === undefined ? {} : { engine }),
          });
          expect(result.done).toBe(2_000);
          expect(result.commits.reduce((sum, { inferences }) => sum + inferences, 0)).toBe(2_000);
          expect(result.commits.every(({ s }, i, all) => i === 0 || s >= (all[i - 1]?.s ?? 0))).toBe(true);
        },
      ),
      { numRuns: 100 },
    );
  });

  it('gives the same result for the same seed, and another for another', () => {
    const of = (seed: number) =>
      simulateWorkers({
        work: { inferences: 1_000, empty: 0 },
        workers: [{ gpu: A10, joinS: 0 }],
        policy: 'partial',
        batch: 10,
        seed,
      }).endS;
    expect(of(1)).toBe(of(1));
    expect(of(1)).not.toBe(of(2));
  });

  it('loses a whole task at an eviction, and with commits by line only what is in flight', () => {
    const run = { work: { inferences: 4_000, empty: 0 }, policy: 'pervasive', batch: 1_000, seed: 3 } as const;
    const workers = [{ gpu: A10, joinS: 0, leaveS: 700 }];
    expect(simulateWorkers({ ...run, workers }).lost).toBe(1_000);
    const byLine = simulateWorkers({ ...run, workers, engine: { window: 16, speedup: 1, flushS: 1 } });
    expect(byLine.lost).toBeLessThanOrEqual(16 + 5);
    expect(byLine.done).toBeGreaterThan(500);
  });
});

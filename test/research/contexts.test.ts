import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { A10, SITE, TITAN_X_PASCAL } from '../../research/contexts/gpus.ts';
import { simulateWorkers, type Worker } from '../../research/contexts/simulate.ts';
import { evictionRows, oursRows, taskRows, timeRows, times } from '../../research/papers/context/claims.ts';

describe('the paper’s runs pv0 to pv6', () => {
  const found = times();

  it.each(
    [...timeRows(found), ...evictionRows(), ...taskRows(), ...oursRows(found)].map((row) => [row.claim, row] as const),
  )('%s', (_, row) => {
    expect(row, `${row.ours} ${row.unit}, allowed ${row.band?.join(' to ')}`).toMatchObject({ holds: true });
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

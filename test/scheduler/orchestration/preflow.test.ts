import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { mostServed } from '../../../scheduler/orchestration/assignment.ts';
import { separableFlow } from '../../../scheduler/orchestration/preflow.ts';

const positive = (max: number) => fc.double({ min: 0.1, max, noNaN: true });
const sum = (rows: readonly (readonly number[])[]) => rows.flat().reduce((all, one) => all + one, 0);

describe('preflow-push', () => {
  it('serves as much as the linear program where replicas differ only by a factor', () => {
    fc.assert(
      fc.property(
        fc.array(positive(20), { minLength: 1, maxLength: 6 }),
        fc.array(fc.oneof(fc.constant(0), positive(60)), { minLength: 1, maxLength: 5 }),
        (speed, demand) => {
          const flow = separableFlow(
            speed,
            demand.map(() => 1),
            demand,
          );
          const proof = mostServed({
            rates: speed.map((a) => demand.map(() => a)),
            replicas: speed.map(() => 1),
            demand,
          });
          expect(sum(flow)).toBeCloseTo(
            proof.served.reduce((all, one) => all + one, 0),
            5,
          );
          for (const [k, row] of flow.entries()) expect(sum([row])).toBeLessThanOrEqual((speed[k] ?? 0) + 1e-6);
        },
      ),
      { numRuns: 300, seed: 29 },
    );
  });

  it('does as much work as the linear program where rates are separable, n_kj = a_k b_j', () => {
    fc.assert(
      fc.property(
        fc.array(positive(20), { minLength: 1, maxLength: 5 }),
        fc.array(fc.tuple(positive(5), positive(60)), { minLength: 1, maxLength: 5 }),
        (speed, kinds) => {
          const [ease, demand] = [kinds.map(([b]) => b), kinds.map(([, d]) => d)];
          const flow = separableFlow(speed, ease, demand);
          const work = sum(flow.map((row) => row.map((x, j) => x / (ease[j] ?? 1))));
          const wanted = demand.reduce((all, d, j) => all + d / (ease[j] ?? 1), 0);
          const capacity = speed.reduce((all, a) => all + a, 0);
          expect(work).toBeCloseTo(Math.min(wanted, capacity), 5);
        },
      ),
      { numRuns: 300, seed: 30 },
    );
  });
});

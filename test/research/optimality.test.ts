/** Plans of small problems against every possible plan. */
import { describe, expect, it } from 'vitest';
import { judge } from '../../research/judge/exhaustive.ts';
import { tinyInstance } from '../../research/judge/instances.ts';
import { type Verdict, verdictOn } from '../../research/judge/verdict.ts';
import { SchedulerError } from '../../scheduler/errors.ts';
import { OBJECTIVES } from '../../scheduler/solver/planning-problem.ts';
import { catalogue, demand, planOptions, pool } from '../scheduler/support/small.ts';
import { scaled } from '../support/long-form.ts';

/** Instances for each objective; together less than a minute. */
const SEEDS = Number(process.env.JUDGE_SEEDS ?? scaled(200));
/** One seed in ten may have no plan at all: always-on models that do not fit on stable nodes. */
const WITHOUT_PLAN_MAX = 0.1;

describe('a plan is as good as it says, and no model starves', () => {
  it.each(OBJECTIVES)(
    `for the objective %s, against every plan of ${SEEDS} small problems`,
    async (objective) => {
      const faults: string[] = [];
      const verdicts: Verdict[] = [];
      let without = 0;
      for (let seed = 0; seed < SEEDS; seed++) {
        try {
          const verdict = await verdictOn(tinyInstance(catalogue, seed), planOptions({ objective, gap: 0.01 }));
          verdicts.push(verdict);
          for (const fault of verdict.faults) faults.push(`seed ${seed}: ${fault}`);
        } catch (error) {
          if (!(error instanceof SchedulerError) || error.code !== 'infeasible') throw error;
          without++;
        }
      }
      expect(faults).toEqual([]);
      expect(without).toBeLessThan(SEEDS * WITHOUT_PLAN_MAX);
      // Only a proven plan can be wrong, so nearly all must be proven.
      expect(verdicts.filter(({ proven }) => proven).length).toBeGreaterThan(0.95 * verdicts.length);
      expect(verdicts.some(({ kind }) => kind === 'served')).toBe(true);
      if (objective !== 'throughput') expect(verdicts.some(({ kind }) => kind === 'demand')).toBe(true);
    },
    120_000,
  );
});

describe('the judge', () => {
  const pools = [pool('a', 'A100-80-SXM', 3, 1)];
  const demands = [demand('Qwen3-8B', 30, 300, 200), demand('Llama-3.1-8B-Instruct', 1, 300, 200)];
  const replicas = (model: string, n: number) => ({ model, pool: 'a', tp: 1, replicas: n });

  it('tells a plan that starves a model from one that serves both', () => {
    const { best, rate } = judge({ pools, demands }, planOptions({ objective: 'latency' }));
    const starving = rate([replicas('Qwen/Qwen3-8B', 3)]);
    const fair = rate([replicas('Qwen/Qwen3-8B', 2), replicas('meta-llama/Llama-3.1-8B-Instruct', 1)]);
    expect([starving.share, starving.placed]).toEqual([0, 1]);
    expect(fair.placed).toBe(2);
    expect(fair.share).toBeCloseTo(best.share, 9);
    expect(best.share).toBeGreaterThan(0.5);
  });

  it('refuses what does not fit', () => {
    const { rate } = judge({ pools, demands }, planOptions());
    expect(() => rate([replicas('Qwen/Qwen3-8B', 4)])).toThrow(/breaks a condition/);
  });
});

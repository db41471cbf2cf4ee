/** An agent's ingress obeys the shares of a plan of regions. */
import { expect, test } from 'vitest';
import { IngressPlan } from '../../../agent/ingress/ingress-plan.ts';
import { policyOf } from '../../../agent/ingress/routing-policies.ts';
import type { Candidate } from '../../../shared/routing/candidates.ts';
import type { ModelShares } from '../../../shared/routing/region-shares.ts';

const REQUEST = { model: 'm', priority: 'interactive' as const, inputTokens: 1 };
const nodes = ['ch', 'ch', 'fi'].map(
  (region, n): Candidate => ({ session: `s${n}`, provider: 'lab', cluster: 'c', tier: 'stable', inFlight: 0, region }),
);

function regions(policyFor: ReturnType<typeof policyOf>, requests: number, model = 'm') {
  const got: Record<string, number> = {};
  for (let n = 0; n < requests; n++) {
    const region = policyFor({ ...REQUEST, model }).pick(nodes, REQUEST, Math.random)?.region ?? '';
    got[region] = (got[region] ?? 0) + 1;
  }
  return got;
}

test('requests are divided by the shares while a plan is valid, and by the policy without one', () => {
  let shares: ModelShares | undefined = { shares: { ch: 0.2, fi: 0.8 } };
  const policyFor = policyOf(
    undefined,
    () => {},
    (model) => (model === 'm' ? shares : undefined),
  );
  const { fi = 0 } = regions(policyFor, 100);
  expect(Math.abs(fi - 80)).toBeLessThanOrEqual(2);
  expect(policyFor(REQUEST).name).toBe('score');
  expect(policyFor({ ...REQUEST, model: 'n' }).name).toBe('least-load');
  shares = undefined;
  expect(policyFor(REQUEST).name).toBe('least-load');
});

test('a configured policy chooses the node within the region', () => {
  const policyFor = policyOf(
    'round-robin',
    () => {},
    () => ({ shares: { ch: 1 } }),
  );
  expect(policyFor(REQUEST).name).toBe('round-robin');
  expect(regions(policyFor, 10)).toEqual({ ch: 10 });
});

test('a plan ends when its time is over, when the gateway has none, and never later than half an hour from its arrival', () => {
  const plan = new IngressPlan();
  const models = { m: { shares: { ch: 1 } } };
  expect(plan.sharesOf('m', 0)).toBeUndefined();
  plan.set({ holds_ms: 5_000, models }, 1_000);
  expect(plan.sharesOf('m', 5_999)).toEqual(models.m);
  expect(plan.sharesOf('n', 5_999)).toBeUndefined();
  expect(plan.sharesOf('m', 6_000)).toBeUndefined();
  plan.set({ holds_ms: 10 ** 12, models }, 0);
  expect(plan.sharesOf('m', 30 * 60_000 - 1)).toEqual(models.m);
  expect(plan.sharesOf('m', 30 * 60_000)).toBeUndefined();
  plan.set(undefined, 1);
  expect(plan.sharesOf('m', 2)).toBeUndefined();
});

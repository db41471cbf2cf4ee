import { expect, test } from 'vitest';
import { NO_SETTINGS } from '../../../gateway/accounts/gateway-settings.ts';
import { PolicySelector } from '../../../gateway/routing/policy-selector.ts';
import type { Candidate } from '../../../shared/routing/candidates.ts';
import { statelessPolicy } from '../../../shared/routing/policies/stateless.ts';

const request = { model: 'm', priority: 'interactive' as const, inputTokens: 1 };
const named = (policy: string | undefined) => (policy === undefined ? [] : [{ policy }]);

test.each([
  ['nothing is set', {}, undefined, undefined, 'least-load'],
  ['the installation says so', {}, undefined, 'random', 'random'],
  ['the model says otherwise', { policy: 'round-robin' }, undefined, 'random', 'round-robin'],
  ['weights were given for it', { weights: [{ weight: 1 }] }, undefined, 'random', 'weighted'],
  [
    'weights were given for it and a policy',
    { policy: 'random', weights: [{ weight: 1 }] },
    undefined,
    undefined,
    'random',
  ],
  ['the key says otherwise', { policy: 'round-robin' }, 'prefix-affinity', 'random', 'prefix-affinity'],
  ['a policy was taken out of the installation', {}, 'gone', undefined, 'least-load'],
])('where %s, that is the policy', (_, ofModel, ofKey, policy, expected) => {
  const settings = { ...NO_SETTINGS, models: { m: ofModel }, routing: policy === undefined ? {} : { policy } };
  expect(new PolicySelector().for(settings, { routing: named(ofKey) }, request, 'm').name).toBe(expected);
});

test('a request that names a conversation gets its node by default', () => {
  const asked = { ...request, session: 'p 1' };
  expect(new PolicySelector().for(NO_SETTINGS, { routing: [] }, asked, 'm').name).toBe('prefix-affinity');
});

test('within a region of a plan the score chooses, unless a setting names a policy', () => {
  const regionPlan = { planner: 'p', sequence: 1, expires_at: 1_000, models: { m: { shares: { ch: 1 } } } };
  const chosen = (routing: { policy?: string }, now: number) =>
    new PolicySelector().for({ ...NO_SETTINGS, regionPlan, routing }, { routing: [] }, request, 'm', { now }).name;
  expect(chosen({}, 999)).toBe('score');
  expect(chosen({ policy: 'least-load' }, 999)).toBe('least-load');
  expect(chosen({}, 1_000)).toBe('least-load');
});

test('a gateway with a region has the shares of its row', () => {
  const node = (region: string): Candidate => ({
    session: region,
    provider: 'lab',
    cluster: 'c',
    tier: 'stable',
    inFlight: 0,
    region,
  });
  const nodes = [node('ch'), node('fi')];
  const models = { m: { shares: { ch: 1 }, origins: { fi: { shares: { fi: 1 } } } } };
  const regionPlan = { planner: 'p', sequence: 1, expires_at: 1_000, models };
  const chosen = (region: string | undefined) =>
    new PolicySelector()
      .for({ ...NO_SETTINGS, regionPlan }, { routing: [] }, request, 'm', { region, now: 999 })
      .pick(nodes, request, Math.random)?.region;
  for (let n = 0; n < 5; n++)
    expect([chosen('fi'), chosen('ch'), chosen(''), chosen(undefined)]).toEqual(['fi', 'ch', 'ch', 'ch']);
});

test('weights that change act on the next request', () => {
  const policies = new PolicySelector();
  const nodes: Candidate[] = ['a', 'b'].map((session) => ({
    session,
    provider: 'lab',
    cluster: session,
    tier: 'stable',
    inFlight: 0,
  }));
  const chosen = (cluster: string) => {
    const settings = { ...NO_SETTINGS, models: { m: { weights: [{ cluster, weight: 1 }] } } };
    return policies.for(settings, { routing: [] }, request, 'm').pick(nodes, request, Math.random)?.session;
  };
  for (let n = 0; n < 5; n++) expect([chosen('a'), chosen('b')]).toEqual(['a', 'b']);
});

test('an operator’s own policy is chosen by its name', () => {
  const first = statelessPolicy('first', ([one]) => one);
  const policies = new PolicySelector([first]);
  const settings = { ...NO_SETTINGS, models: { m: { policy: 'first' } } };
  expect(policies.for(settings, { routing: [] }, request, 'm')).toBe(first);
});

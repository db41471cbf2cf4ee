import { expect, test } from 'vitest';
import { cohortOf, isBack, type RolloutNode, upgradedOf } from '../../../gateway/cli/rollout-cohort.ts';

const node = (session: string, more: Partial<RolloutNode> = {}): RolloutNode => ({
  session,
  provider: 'eth',
  cluster: 'alps',
  version: '0.1.0',
  state: 'SERVING',
  ready: true,
  models: ['m'],
  ...more,
});
const sessions = (nodes: readonly RolloutNode[]) => nodes.map(({ session }) => session);
const wanted = { to: '0.2.0', cohort: '50%', alone: false };

test('a cohort is a share of all nodes, at least one, of those that are behind', () => {
  const nodes = ['a', 'b', 'c', 'd', 'e'].map((session) => node(session));
  expect(sessions(cohortOf(nodes, wanted).chosen)).toEqual(['a', 'b']);
  expect(cohortOf(nodes, { ...wanted, cohort: '1%' }).chosen).toHaveLength(1);
  expect(cohortOf(nodes, { ...wanted, cohort: '3' }).chosen).toHaveLength(3);
  const upgraded = nodes.map((one) => ({ ...one, version: '0.2.0' }));
  expect(cohortOf(upgraded, wanted)).toEqual({ chosen: [], only: [], behind: 0 });
});

test('of each model a node stays that serves, however large the cohort', () => {
  const nodes = [node('a'), node('b'), node('c', { models: ['other'] })];
  const { chosen, only } = cohortOf(nodes, { ...wanted, cohort: '100%' });
  expect(sessions(chosen)).toEqual(['a']);
  expect(sessions(only)).toEqual(['b', 'c']);
  expect(cohortOf(nodes, { ...wanted, cohort: '100%', alone: true }).chosen).toHaveLength(3);
});

test('nodes that serve nothing come first, those that leave not at all', () => {
  const nodes = [node('a'), node('b'), node('idle', { ready: false, models: [] }), node('gone', { state: 'DOWN' })];
  expect(sessions(cohortOf(nodes, { ...wanted, cohort: '1' }).chosen)).toEqual(['idle']);
  expect(cohortOf(nodes, wanted).behind).toBe(3);
});

test('a node that served nothing is back once it is there again, one that served once it serves again', () => {
  const idle = node('idle', { ready: false, models: [] });
  const chosen = [idle, node('a')];
  const before = upgradedOf([...chosen, node('b')], '0.2.0');
  const after = (a: Partial<RolloutNode>) =>
    upgradedOf([{ ...idle, version: '0.2.0' }, node('a', { version: '0.2.0', ...a }), node('b')], '0.2.0');
  expect(isBack(after({}), before, chosen)).toBe(true);
  expect(isBack(after({ ready: false, models: [] }), before, chosen)).toBe(false);
  expect(isBack(after({ version: '0.1.0' }), before, chosen)).toBe(false);
});

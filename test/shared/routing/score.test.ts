import { expect, test } from 'vitest';
import type { Candidate } from '../../../shared/routing/candidates.ts';
import { scorePolicy } from '../../../shared/routing/policies/score.ts';
import type { RoutedRequest } from '../../../shared/routing/routing-policy.ts';
import { seeded } from '../../sim/random.ts';

const ASKED: RoutedRequest = { model: 'm', priority: 'interactive', inputTokens: 100 };

class Node implements Candidate {
  readonly provider = 'lab';
  readonly cluster = 'c';
  readonly tier = 'stable';
  inFlight = 0;
  readonly session: string;
  readonly gpu: string | undefined;
  readonly gpus: number;

  constructor(session: string, gpu?: string, gpus = 1) {
    this.session = session;
    this.gpu = gpu;
    this.gpus = gpus;
  }
}

/** Sends requests that never end; returns how many each node has. */
function fill(nodes: readonly Node[], requests: number, asked: (n: number) => Partial<RoutedRequest> = () => ({})) {
  const policy = scorePolicy();
  const random = seeded(3);
  for (let n = 0; n < requests; n++) {
    const request = { ...ASKED, ...asked(n) };
    const chosen = policy.pick(nodes, request, random);
    const node = nodes.find((one) => one === chosen);
    if (node === undefined) throw new Error('nothing was chosen');
    policy.onRequestStart(node, request);
    node.inFlight++;
  }
  return nodes.map(({ inFlight }) => inFlight);
}

test('an idle fast node comes first, and slower nodes get requests as it fills', () => {
  const [fast, slow] = [new Node('fast', 'H100'), new Node('slow', 'L4')];
  expect(fill([slow, fast], 5)).toEqual([0, 5]);
  expect(fill([new Node('slow', 'A100'), new Node('fast', 'H100')], 400).every((count) => count > 100)).toBe(true);
});

test('equal nodes get equal numbers, whatever their order', () => {
  const counts = fill(
    Array.from({ length: 8 }, (_, n) => new Node(`s${n}`)),
    400,
  );
  for (const count of counts) expect(Math.abs(count - 50)).toBeLessThanOrEqual(2);
});

test('under any load a node gets at most 1.1 times its share and 4 more', () => {
  const nodes = [new Node('a', 'H100'), new Node('b', 'A100'), new Node('c', 'L4')];
  const speeds = [3.35, 2, 0.3];
  const sum = speeds.reduce((total, one) => total + one, 0);
  for (const requests of [10, 100, 1_000]) {
    for (const node of nodes) node.inFlight = 0;
    fill(nodes, requests).forEach((count, at) => {
      expect(count).toBeLessThanOrEqual((1.1 * requests * (speeds[at] ?? 0)) / sum + 5);
    });
  }
});

test('a conversation stays at its node while that node is about as busy as others, and leaves an overloaded one', () => {
  const nodes = Array.from({ length: 20 }, (_, n) => new Node(`s${n}`));
  const policy = scorePolicy();
  const request = { ...ASKED, session: 'p 1' };
  const [home] = nodes;
  if (home === undefined) throw new Error();
  policy.onRequestStart(home, request);
  home.inFlight = 2;
  const random = seeded(1);
  for (let n = 0; n < 50; n++) expect(policy.pick(nodes, request, random)).toBe(home);
  home.inFlight = 30;
  expect(policy.pick(nodes, request, random)).not.toBe(home);
});

test('prompts with the same beginning share a node, and other models do not', () => {
  const nodes = [new Node('a'), new Node('b')];
  const policy = scorePolicy();
  const [, second] = nodes;
  if (second === undefined) throw new Error();
  policy.onRequestStart(second, { ...ASKED, prefixHash: 7 });
  second.inFlight = 1;
  expect(policy.pick(nodes, { ...ASKED, prefixHash: 7 }, () => 0)).toBe(second);
  expect(policy.pick(nodes, { ...ASKED, prefixHash: 7, model: 'n' }, () => 0)).not.toBe(second);
});

test('a node that claims a thousand GPUs gets at most some ten times the requests of others', () => {
  const nodes = [new Node('liar', 'GB300', 1_000), ...Array.from({ length: 7 }, (_, n) => new Node(`s${n}`, 'A100'))];
  const [liar = 0, ...others] = fill(nodes, 1_500);
  expect(liar).toBeLessThan((11 * others.reduce((sum, count) => sum + count, 0)) / others.length);
});

test('a claim that is no number counts as a slow node', () => {
  const nodes = [new Node('odd', 'H100', Number.NaN), new Node('none', 'H100', 0), new Node('a', 'A100')];
  expect(fill(nodes, 300).reduce((sum, count) => sum + count, 0)).toBe(300);
});

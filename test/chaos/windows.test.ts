import { expect, it } from 'vitest';
import { line, type Second, windowsOf } from './windows.ts';

/** A second in which the gateway listed these numbers of replicas. */
const second = (tokens: number, ...servings: number[]): Second => ({ tokens, servings });

/** The load starts in the first second; replicas are killed in the fifth and the ninth. */
const RUN = [
  ...[246, 856, 847, 818].map((tokens) => second(tokens, 10, 10)),
  second(460, 10, 7),
  ...[330, 571, 566].map((tokens) => second(tokens, 7, 7)),
  second(280, 7, 4),
  ...[190, 325, 331].map((tokens) => second(tokens, 4, 4)),
];

it('only windows count in which the load runs and the number of replicas was the same in the previous one', () => {
  const windows = windowsOf(RUN, 1);
  expect(windows.filter(({ settled }) => settled).map(({ at }) => at)).toEqual([1, 2, 3, 6, 7, 10, 11]);
  expect(line(windows).pearson).toBeGreaterThan(0.99);
  expect(line(windows).tokensPerReplica).toBeCloseTo(86, 0);
  expect(line(windows.map((window) => ({ ...window, settled: true }))).pearson).toBeLessThan(0.8);
});

it('tokens that do not follow the replicas have no correlation', () => {
  const flat = RUN.map(({ servings }, at) => ({ servings, tokens: 400 + (at % 2) }));
  expect(Math.abs(line(windowsOf(flat, 1)).pearson)).toBeLessThan(0.5);
});

it('a window of several seconds has their mean, and an incomplete one is left out', () => {
  expect(windowsOf(RUN, 5)).toEqual([
    { at: 0, serving: 9.7, tokensPerSecond: 645.4, settled: false },
    { at: 5, serving: 6.1, tokensPerSecond: 387.4, settled: false },
  ]);
});

import { expect, it } from 'vitest';
import { ByteBudget } from '../../../shared/attempts/byte-budget.ts';

it('shares hold as much as there is, and give it back once', () => {
  const budget = new ByteBudget(100);
  const [one, two] = [budget.share(), budget.share()];
  expect(one.grow(60)).toBe(true);
  expect(one.grow(50)).toBe(true); // less than it holds
  expect(two.grow(41)).toBe(false);
  expect(two.grow(40)).toBe(true);
  one.release();
  one.release();
  expect(two.grow(101)).toBe(false);
  expect(two.grow(100)).toBe(true);
});

it('a share that was released holds nothing that comes late', () => {
  const budget = new ByteBudget(100);
  const one = budget.share();
  one.release();
  one.claim(100);
  expect(budget.share().grow(100)).toBe(true);
});

it('a request that needs memory when none is free is asked to retry', () => {
  const budget = new ByteBudget(100);
  budget.share().claim(90);
  expect(() => budget.share().claim(20)).toThrow(expect.objectContaining({ code: 'server_is_overloaded' }));
  expect(budget.share(200).grow(20)).toBe(true);
});

it('a length that is not known takes nothing', () => {
  const budget = new ByteBudget(100);
  budget.share().claim(Number.NaN);
  expect(budget.share().grow(100)).toBe(true);
});

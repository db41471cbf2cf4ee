/** Searches through hours of records: how many one account, and all accounts together, may begin. */
import { expect, test } from 'vitest';
import { RecordSearchLimit } from '../../../gateway/admin/usage/record-search-limit.ts';

const limited = (waitS: number) =>
  expect.objectContaining({ code: 'rate_limit_exceeded', headers: { 'retry-after': String(waitS) } });

test('an account searches one after the other, twelve times a minute', () => {
  const searches = new RecordSearchLimit();
  const end = searches.begin('a', 0);
  expect(() => searches.begin('a', 1)).toThrow(limited(2));
  end();
  end();
  for (let n = 1; n < 12; n++) searches.begin('a', n)();
  expect(() => searches.begin('a', 20_000)).toThrow(limited(40));
  searches.begin('b', 20_000)();
  searches.begin('a', 60_000)();
  expect(() => searches.begin('a', 60_000)).toThrow(limited(2));
});

test('if the clock is set back, an account that has searched twelve times may search again', () => {
  const searches = new RecordSearchLimit();
  for (let n = 0; n < 12; n++) searches.begin('a', 600_000)();
  searches.begin('a', 0)();
});

test('four accounts search at a time, and those that searched lately are at most ten thousand', () => {
  const searches = new RecordSearchLimit();
  const ends = ['a', 'b', 'c', 'd'].map((who) => searches.begin(who, 0));
  expect(() => searches.begin('e', 0)).toThrow(limited(2));
  for (const end of ends) end();
  for (let n = 0; n < 9_995; n++) searches.begin(`x${n}`, 1)();
  searches.begin('e', 1)();
  expect(() => searches.begin('f', 1)).toThrow(limited(2));
  searches.begin('f', 61_000)();
});

import { expect, it } from 'vitest';
import { Portions } from '../../../gateway/inlet/portions.ts';

/** As many were added at once; `order` has those that were begun. */
function begun(count: number) {
  const portions = new Portions();
  const order: number[] = [];
  const add = (number: number) => portions.add(() => order.push(number));
  for (let number = 0; number < count; number++) add(number);
  portions.begin();
  const all = async (of: number) => {
    while (order.length < of) await new Promise((resolve) => setTimeout(resolve, 0));
  };
  return { portions, order, add, all };
}

it('begins a few at once, before it returns', () => {
  const { order } = begun(16);
  expect(order).toEqual(Array.from({ length: 16 }, (_, at) => at));
});

it('begins many in portions, in their order, each of them once', async () => {
  const { order, all } = begun(64);
  expect(order).toHaveLength(16);
  await all(64);
  expect(order).toEqual(Array.from({ length: 64 }, (_, at) => at));
});

it('begins a quarter of what waits where that is more', async () => {
  const { order, all } = begun(400);
  expect(order).toHaveLength(100);
  await all(400);
  expect(order).toHaveLength(400);
});

it('begins what comes meanwhile behind what waits, and nothing twice', async () => {
  const { portions, order, add, all } = begun(20);
  add(20);
  portions.begin();
  expect(order).toHaveLength(16); // the rest has its turn already
  await all(21);
  expect(order).toEqual(Array.from({ length: 21 }, (_, at) => at));
  add(21);
  portions.begin();
  expect(order).toHaveLength(22); // nothing waited
});

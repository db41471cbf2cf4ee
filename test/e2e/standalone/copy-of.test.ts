import { expect, test } from 'vitest';
import { clonePlain } from '../../../gateway/hosts/node/clone-plain.ts';

test('lists and plain objects are copied at every depth, and nothing is shared', () => {
  const original = { name: 'a', none: undefined, nothing: null, list: [1, { deep: ['x'] }], big: 3n };
  const copy = clonePlain(original) as typeof original;
  expect(copy).toStrictEqual(original);
  (copy.list[1] as { deep: string[] }).deep.push('y');
  expect(original.list[1]).toEqual({ deep: ['x'] });
  expect(clonePlain(undefined)).toBeUndefined();
});

test.each([
  ['a date', new Date(5)],
  ['a map', new Map([['a', { b: 1 }]])],
  ['bytes', new Uint8Array([1, 2])],
  ['bytes within an object', { body: new Uint8Array([1, 2]), rest: [new Set([1])] }],
])('%s is copied as structuredClone copies it', (_, value) => {
  const copy = clonePlain(value);
  expect(copy).toStrictEqual(value);
  expect(copy).not.toBe(value);
});

test('an object that holds itself is copied once', () => {
  const ring: { self?: unknown } = {};
  ring.self = ring;
  const copy = clonePlain(ring) as { self: unknown };
  expect(copy).not.toBe(ring);
  expect(copy.self).toBe(copy);
});

test('a key named __proto__ stays a key', () => {
  const hostile: unknown = JSON.parse('{"__proto__": {"admin": true}}');
  const copy = clonePlain(hostile) as Record<string, unknown>;
  expect(Object.keys(copy)).toEqual(['__proto__']);
  expect(copy.admin).toBeUndefined();
});

test('a function is refused', () => {
  expect(() => clonePlain({ work: () => {} })).toThrow(/could not be cloned/);
});

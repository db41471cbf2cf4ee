import { expect, test } from 'vitest';
import { clonePlain } from '../../../gateway/hosts/node/clone-plain.ts';
import { immutable } from '../../../gateway/platform/immutable.ts';
import { type SnapshotDelta, SnapshotStore } from '../../../gateway/registry/snapshot-store.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';

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

test('what is immutable is passed on as it is, and no receiver can change it', () => {
  const entry = immutable({ session: 's', models: [{ id: 'm' }] });
  const copy = clonePlain({ entries: [entry] }) as { entries: [typeof entry] };
  expect(copy.entries).toEqual([entry]);
  expect(copy.entries[0]).toBe(entry);
  expect(() => Object.assign(copy.entries[0].models[0] ?? {}, { id: 'other' })).toThrow(TypeError);
  const frozen = Object.freeze({ still: { changes: 1 } });
  expect(clonePlain(frozen), 'a frozen value may have members that change').not.toBe(frozen);
});

test('a snapshot is passed on without copying its entries', () => {
  const store = new SnapshotStore('epoch');
  const entry = { session: 's', models: [{ id: 'm' }] } as unknown as RegistryEntry;
  store.put(entry);
  store.setLive('s', { load: { at: 1, running: 1, waiting: 0 } });
  const first = clonePlain(store.since(null)) as SnapshotDelta;
  expect(first.entries[0]).toBe(entry);
  store.setLive('s', { load: { at: 2, running: 2, waiting: 0 } });
  const second = clonePlain(store.since(first.tag)) as SnapshotDelta;
  expect(second.entries).toEqual([]);
  expect(second.live?.s).toBe(store.liveOf('s'));
  expect([first.live?.s?.load?.at, second.live?.s?.load?.at]).toEqual([1, 2]);
});

test('a function is refused', () => {
  expect(() => clonePlain({ work: () => {} })).toThrow(/could not be cloned/);
});

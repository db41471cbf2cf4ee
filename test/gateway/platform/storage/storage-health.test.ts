/** The gateway's actions and messages while its storage is not writable. */
import { expect, test } from 'vitest';
import { RETRY_MS, StorageFailingError, StorageHealth } from '../../../../gateway/platform/storage/storage-health.ts';

const AT = Date.parse('2026-11-24T12:00:00Z');

function health(): { health: StorageHealth; lines: string[] } {
  const lines: string[] = [];
  return { health: new StorageHealth((line) => lines.push(line)), lines };
}

test.each([
  'database or disk is full: SQLITE_FULL',
  'disk I/O error',
  'attempt to write a readonly database',
  'database is locked: SQLITE_BUSY',
  'unable to open database file',
])('%s is a failure of the storage', (message) => {
  const { health: one } = health();
  expect(one.failed(new Error(message), AT)).toBe(true);
  expect(one.failure).toEqual({ reason: message, since: AT });
});

test('a wrong SQL statement is not a storage failure', () => {
  const { health: one, lines } = health();
  for (const message of ['no such table: usage', 'UNIQUE constraint failed', 'near "x": syntax error'])
    expect(one.failed(new Error(message), AT)).toBe(false);
  expect([one.failure, lines]).toEqual([undefined, []]);
});

test('after a failed write one is tried once a second, and the first that succeeds ends the failure', () => {
  const { health: one, lines } = health();
  one.require(AT);
  one.failed(new Error('SQLITE_FULL'), AT);
  expect(() => one.require(AT + RETRY_MS - 1)).toThrow(StorageFailingError);
  one.require(AT + RETRY_MS);
  expect(() => one.require(AT + RETRY_MS)).toThrow('storage cannot be written: SQLITE_FULL');
  one.wrote(AT + 2 * RETRY_MS);
  expect(one.failure).toBeUndefined();
  expect(lines.at(-1)).toBe('storage is writable again after 2 s; 0 usage records are written now.');
});

test('what the host reports only the host takes back', () => {
  const { health: one } = health();
  one.setFailure('no space', AT);
  one.wrote(AT + 10_000);
  expect(() => one.require(AT + 10_000)).toThrow(StorageFailingError);
  one.setFailure(null, AT + 20_000);
  one.require(AT + 20_000);
});

test('the log gets one line a minute, however often it fails, with what waits and what was lost', () => {
  const { health: one, lines } = health();
  for (let ms = 0; ms <= 130_000; ms += 250) {
    if (ms === 30_000) one.hold(7);
    if (ms === 90_000) one.lose(3);
    one.setFailure('no space', AT + ms);
  }
  const begin = 'storage has not been writable since 2026-11-24T12:00:00.000Z: no space. Requests still work;';
  expect(lines).toEqual([
    `${begin} 0 usage records wait in memory.`,
    `${begin} 7 usage records wait in memory.`,
    `${begin} 4 usage records wait in memory, 3 were lost.`,
  ]);
});

test('beyond its bound the oldest are to be given up', () => {
  const { health: one } = health();
  expect(one.hold(49_999)).toBe(0);
  expect(one.hold(101)).toBe(100);
  one.lose(100);
  expect([one.held, one.lost]).toEqual([50_000, 100]);
  expect(one.hold(1)).toBe(1);
});

test('of storages that fail by themselves one that is full keeps no other one from being written; what waits is counted together', () => {
  const { health: whole, lines } = health();
  const [full, free] = [whole.part('full'), whole.part('free')];
  full.failed(new Error('SQLITE_FULL'), AT);
  expect(() => full.require(AT)).toThrow(StorageFailingError);
  for (const one of [free, whole]) one.require(AT);
  expect([full.failure?.reason, free.failure, whole.failure]).toEqual(['SQLITE_FULL', undefined, undefined]);
  expect(lines[0]).toMatch(/^full: storage has not been writable since/);
  expect([whole.isFailing(AT + 59_999), whole.isFailing(AT + 60_000)]).toEqual([true, false]);
  full.hold(50_001);
  expect([free.hold(1), whole.held]).toEqual([1, 50_002]);
  full.lose(2);
  expect([whole.held, whole.lost, free.held]).toEqual([50_000, 2, 50_000]);
});

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { FACTORY_LEASE_MS, Lease } from '../../../factory/life/lease.ts';

let directory = '';
afterEach(() => rmSync(directory, { recursive: true, force: true }));

/** Time that only the test's sleeps advance; `each` runs in between. */
function clock(each: () => void = () => {}) {
  let now = 0;
  return {
    now: () => now,
    sleep: async (ms: number) => {
      now += ms;
      each();
    },
  };
}

const never = new AbortController().signal;

function place(): string {
  directory = mkdtempSync(join(tmpdir(), 'otela-lease-'));
  return directory;
}

it('the second of two waits for as long as the first one writes, whatever its clock says, and then takes over', async () => {
  const first = new Lease(place(), { host: 'login1', pid: 1 });
  const { sleep, now } = clock();
  expect(await first.acquire(() => {}, sleep, never, now)).toBe(true);
  let beats = 200;
  const told: string[] = [];
  const time = clock(() => {
    if (beats-- > 0) first.beat();
  });
  const second = new Lease(directory, { host: 'login2', pid: 2 });
  expect(await second.acquire(({ host }) => void told.push(host), time.sleep, never, time.now)).toBe(true);
  expect(time.now()).toBeGreaterThanOrEqual(200_000 + FACTORY_LEASE_MS - 2_000);
  expect(told).toEqual(['login1']);
  // The first one sees it and does not write any more.
  expect([first.held(), first.beat(), second.held()]).toEqual([false, false, true]);
});

it('one that was killed on this machine is followed at once', async () => {
  writeFileSync(
    join(place(), 'lease.json'),
    JSON.stringify({ host: hostname(), pid: 2 ** 22 + 1, token: 'x', beat: 5 }),
  );
  const { sleep, now } = clock();
  expect(await new Lease(directory).acquire(() => {}, sleep, never, now)).toBe(true);
  expect(now()).toBeLessThan(5_000);
});

it('a file that a full disk left empty holds nobody for ever', async () => {
  writeFileSync(join(place(), 'lease.json'), '');
  const { sleep, now } = clock();
  expect(await new Lease(directory).acquire(() => {}, sleep, never, now)).toBe(true);
  expect(now()).toBeGreaterThanOrEqual(FACTORY_LEASE_MS);
});

it('a wait ends when it is told to, and leaves the other one its file', async () => {
  const first = new Lease(place(), { host: 'login1', pid: 1 });
  const { sleep, now } = clock();
  await first.acquire(() => {}, sleep, never, now);
  const ending = new AbortController();
  const time = clock(() => ending.abort());
  expect(
    await new Lease(directory, { host: 'login2', pid: 2 }).acquire(() => {}, time.sleep, ending.signal, time.now),
  ).toBe(false);
  expect(JSON.parse(readFileSync(join(directory, 'lease.json'), 'utf8'))).toMatchObject({ host: 'login1' });
  first.release();
  expect(() => readFileSync(join(directory, 'lease.json'))).toThrow();
});

it('a file that cannot be read for a moment ends no factory, one that cannot be read for long does', async () => {
  const lease = new Lease(place(), { host: 'login1', pid: 1 });
  const { sleep, now } = clock();
  await lease.acquire(() => {}, sleep, never, now);
  const path = join(directory, 'lease.json');
  const text = readFileSync(path, 'utf8');
  rmSync(path);
  // Reading a directory fails like a file system that is unreachable.
  mkdirSync(path);
  expect(lease.held()).toBe(true);
  await sleep(FACTORY_LEASE_MS / 2);
  expect(lease.held()).toBe(false);
  rmSync(path, { recursive: true });
  writeFileSync(path, text);
  expect(lease.held()).toBe(true);
});

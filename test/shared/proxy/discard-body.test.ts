import { expect, test } from 'vitest';
import { discardBody } from '../../../shared/proxy/discard-body.ts';
import type { BodySource } from '../../../shared/proxy/proxy-http-types.ts';
import { FakeClock } from './fake-host.ts';

/** A body of `pieces` KiB. `stalls`: nothing arrives after them, not even the end. */
function bodyOf(pieces: number, { stalls = false, breaks = false } = {}) {
  const seen = { read: 0, cancelled: 0 };
  const body: BodySource = {
    whole: undefined,
    reader: () => ({
      read: () => {
        if (seen.read < pieces) return Promise.resolve(new Uint8Array(1024)).finally(() => seen.read++);
        if (breaks) return Promise.reject(new Error('the client left'));
        return stalls ? new Promise(() => {}) : Promise.resolve(undefined);
      },
      cancel: async () => {
        seen.cancelled++;
      },
      release: () => {},
    }),
  };
  return { body, seen };
}

test('a refused body is read to its end, and its connection stays', async () => {
  const { body, seen } = bodyOf(5);
  await discardBody(body, { clock: new FakeClock() });
  expect(seen).toEqual({ read: 5, cancelled: 0 });
});

test('a body that is longer than the bound is given up there', async () => {
  const { body, seen } = bodyOf(1_000);
  await discardBody(body, { clock: new FakeClock() }, 3 * 1024);
  expect(seen).toEqual({ read: 3, cancelled: 1 });
});

test('a client that neither sends nor leaves is waited for 10 s', async () => {
  const clock = new FakeClock();
  const { body, seen } = bodyOf(1, { stalls: true });
  let over = false;
  const discarding = discardBody(body, { clock }).then(() => {
    over = true;
  });
  await clock.advance(9_999);
  expect([over, seen.cancelled]).toEqual([false, 0]);
  await clock.advance(1);
  await discarding;
  expect(seen).toEqual({ read: 1, cancelled: 1 });
});

test('a client that leaves meanwhile is no error', async () => {
  const { body, seen } = bodyOf(2, { breaks: true });
  await expect(discardBody(body, { clock: new FakeClock() })).resolves.toBeUndefined();
  expect(seen).toEqual({ read: 2, cancelled: 0 });
});

test('a complete body, or one that is already being read, is left alone', async () => {
  const reader = () => {
    throw new Error('it is read');
  };
  await discardBody({ whole: new Uint8Array(3), reader }, { clock: new FakeClock() });
  await discardBody({ whole: undefined, reader: () => undefined }, { clock: new FakeClock() });
});

import { expect, test } from 'vitest';
import { BodyPace } from '../../../shared/proxy/body-pace.ts';
import { FakeClock, settle } from './fake-host.ts';

const STALL_MS = 30_000;

/** A reader of a body; the test decides when its pieces arrive. */
function reading() {
  const clock = new FakeClock();
  const pace = new BodyPace(STALL_MS, clock);
  let code: string | undefined;
  const ask = () => {
    const piece = Promise.withResolvers<Uint8Array | undefined>();
    void pace.next(piece.promise).catch((error) => {
      code = error.code;
    });
    return {
      /** The piece arrives after `ms` of waiting for it. */
      bytes: async (count: number, ms: number) => {
        await clock.advance(ms);
        piece.resolve(new Uint8Array(count));
        await settle();
      },
      breaks: () => piece.reject(new Error('reset')),
    };
  };
  return { clock, ask, code: () => code };
}

test('a body of one byte every 29 s is given up after 30 s', async () => {
  const { clock, ask, code } = reading();
  await ask().bytes(1, 29_000);
  ask();
  await clock.advance(1_000);
  expect(code()).toBeUndefined();
  await clock.advance(2); // a byte is worth 2 ms
  expect(code()).toBe('request_timeout');
});

test('megabytes that came at once pay for no dripping behind them', async () => {
  const { clock, ask, code } = reading();
  await ask().bytes(100 * 1024 * 1024, 1_000);
  await ask().bytes(1, 29_000);
  ask();
  await clock.advance(1_002);
  expect(code()).toBe('request_timeout');
});

test.each([
  ['in small pieces', 100, 100],
  ['once a second', 1_000, 1_000],
  ['with pauses of 25 s', 25_000, 25_000],
])('a line of 1 KB/s is read for hours, %s', async (_, bytes, everyMs) => {
  const { ask, code } = reading();
  for (let n = 0; n < 2_000; n++) await ask().bytes(bytes, everyMs);
  expect(code()).toBeUndefined();
});

test('time in which its reader asks for nothing is not the body’s', async () => {
  const { clock, ask, code } = reading();
  for (let n = 0; n < 100; n++) {
    await ask().bytes(1, 100);
    await clock.advance(600_000);
  }
  expect(code()).toBeUndefined();
});

test('a body that breaks off is the client’s mistake', async () => {
  const { ask, code } = reading();
  ask().breaks();
  await settle();
  expect(code()).toBe('invalid_request');
});

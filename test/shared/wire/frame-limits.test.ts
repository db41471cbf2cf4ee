import { expect, test } from 'vitest';
import { encodeFrame, readFrames } from '../../../shared/wire/frame-codec.ts';
import { FRAME_LIMITS, FrameMeter } from '../../../shared/wire/frame-limits.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { WireError } from '../../../shared/wire/wire-error.ts';

const types = Object.keys(FRAME_LIMITS) as Frame['type'][];

test.each(types)('%s: its burst passes, one more does not, and its rate passes for ever', (type) => {
  let now = 0;
  const meter = new FrameMeter(() => now);
  const { burst, perSecond } = FRAME_LIMITS[type];
  for (let n = 0; n < burst; n++) meter.take(type);
  expect(() => meter.take(type)).toThrow(WireError);
  for (let second = 0; second < 3; second++) {
    now += 1_000;
    meter.begin();
    for (let n = 0; n < perSecond; n++) meter.take(type);
    expect(() => meter.take(type)).toThrow(`more than ${perSecond} ${type} frames a second`);
  }
});

test('one type that is used up leaves the others their own', () => {
  const meter = new FrameMeter(() => 0);
  expect(() => {
    for (;;) meter.take('probe');
  }).toThrow(WireError);
  expect(() => meter.take('data')).not.toThrow();
});

test('a clock that is set back gives nothing and takes nothing away', () => {
  let now = 1_000_000;
  const meter = new FrameMeter(() => now);
  for (let n = 0; n < FRAME_LIMITS.hello.burst; n++) meter.take('hello');
  now = 0;
  meter.begin();
  expect(() => meter.take('hello')).toThrow(WireError);
  now = 1_000;
  meter.begin();
  expect(() => meter.take('hello')).not.toThrow();
});

test('a frame within the bounds of all its fields, and above that of its type, is refused', () => {
  const streams = Array.from({ length: 65_536 }, (_, n) => 2 ** 52 + n);
  const message = encodeFrame({ type: 'settled', streams });
  expect(message.length).toBeGreaterThan(FRAME_LIMITS.settled.bytes);
  expect(() => readFrames(message, () => {})).toThrow(/^settled of \d+ bytes/);
});

import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import { readFrames, writeFrame } from '../../../shared/wire/frame-codec.ts';
import { FrameWriter } from '../../../shared/wire/frame-writer.ts';
import { FRAME_TYPES, type Frame, PROBE_VERDICTS, RESET_CODES } from '../../../shared/wire/frames.ts';
import { TIMED_REPORT_FRAME } from '../../../shared/wire/protocol-constants.ts';
import { NO_USAGE, type ReportedTimings, withoutMedia } from '../../../shared/wire/reported-usage.ts';
import { WireError } from '../../../shared/wire/wire-error.ts';

const stream = fc.integer({ min: 1, max: 2 ** 40 });
const offset = fc.integer({ min: 0, max: 2 ** 51 });
const short = fc.integer({ min: 0, max: 1_000_000 });
const header = fc.tuple(
  fc.constantFrom('content-type', 'accept', 'x-unknown', 'retry-after', 'traceparent'),
  fc.constantFrom('application/json', 'text/event-stream', '*/*', '', 'ünïcode', 'x'.repeat(300)),
);
const headers = fc.array(header, { maxLength: 8 });
const requestId = fc.oneof(fc.uuid(), fc.stringMatching(/^[A-Za-z0-9._:-]{1,40}$/));
const bytes = (maxLength: number) => fc.uint8Array({ maxLength });
const usage = fc.record({
  prompt: short,
  completion: short,
  cached: short,
  reasoning: short,
  estimated: fc.boolean(),
  complete: fc.boolean(),
  aborted: fc.boolean(),
});
const media = fc.record({ audioMs: short, images: fc.integer({ min: 1, max: 1_000 }) });
const usageWithMedia = fc.tuple(usage, media).map(([tokens, seen]) => ({ ...tokens, ...seen }));
const timings = fc
  .record({ status: fc.constantFrom(0, 200, 422, 599), firstMs: short, more: short })
  .map(({ status, firstMs, more }) => ({ status, firstMs, totalMs: firstMs + more }));
const name = fc.record({ requestId, attempt: short, receipt: fc.string({ maxLength: 30 }) });

const frame: fc.Arbitrary<Frame> = fc.oneof(
  fc.record({
    type: fc.constant('open' as const),
    stream,
    resume: fc.boolean(),
    requestId,
    attempt: short,
    answerOffset: offset,
    endpoint: short,
    headers,
    edits: fc.array(fc.record({ at: short, remove: short, insert: bytes(50) }), { maxLength: 4 }),
    streaming: fc.boolean(),
    dropUsage: fc.boolean(),
    firstByteMs: short,
    stallMs: short,
    receipt: fc.string({ maxLength: 30 }),
    bodyLength: fc.option(offset, { nil: undefined }),
  }),
  fc.record({ type: fc.constant('accept' as const), stream, bodyOffset: offset, bodyDone: fc.boolean() }),
  fc.record({
    type: fc.constant('head' as const),
    stream,
    status: fc.integer({ min: 200, max: 599 }),
    engineTenths: short,
    headers,
  }),
  fc.record({
    type: fc.constant('data' as const),
    stream,
    offset,
    bytes: fc.uint8Array({ minLength: 1, maxLength: 300 }),
  }),
  fc.record({ type: fc.constant('end' as const), stream, offset }),
  fc.record({
    type: fc.constant('reset' as const),
    stream,
    code: fc.constantFrom(...RESET_CODES),
    message: fc.string({ maxLength: 100 }),
  }),
  fc.record({ type: fc.constant('credit' as const), stream: fc.nat(), consumed: offset, window: short }),
  fc.record({ type: fc.constant('report' as const), stream, usage }),
  fc.record({ type: fc.constant('report' as const), stream, usage, name }),
  fc.record({ type: fc.constant('report' as const), stream, usage, name, timings }),
  fc.record({ type: fc.constant('report' as const), stream, usage: usageWithMedia, name, timings }),
  fc.record({ type: fc.constant('settled' as const), streams: fc.array(stream, { maxLength: 20 }) }),
  fc.record({ type: fc.constant('record' as const), sequence: short, update: bytes(200) }),
  fc.record({ type: fc.constant('recorded' as const), sequence: short }),
  fc.record({ type: fc.constant('challenge' as const), nonce: bytes(64) }),
  fc.record({
    type: fc.constant('hello' as const),
    publicKey: bytes(64),
    signature: bytes(128),
    generation: short,
    window: short,
  }),
  fc.record({ type: fc.constant('welcome' as const), window: short, gateway: fc.string({ maxLength: 16 }) }),
  fc.record({ type: fc.constant('probe' as const), nonce: short, session: fc.stringMatching(/^[a-z2-7]{26}$/) }),
  fc.record({ type: fc.constant('usage' as const), sequence: short, json: fc.string({ maxLength: 200 }) }),
  fc.record({ type: fc.constant('stored' as const), sequence: short }),
  fc.record({ type: fc.constant('deploy' as const), sequence: short, order: bytes(300) }),
  fc.record({ type: fc.constant('deployed' as const), sequence: short, json: fc.string({ maxLength: 200 }) }),
  fc.record({ type: fc.constant('probed' as const), nonce: short, verdict: fc.constantFrom(...PROBE_VERDICTS) }),
  fc.record({ type: fc.constant('prefixes' as const), of: short, blocks: fc.uint8Array({ maxLength: 200 }) }),
  fc.record({ type: fc.constant('circuit' as const), name: fc.stringMatching(/^[0-9a-f]{32}$/) }),
  fc.record({ type: fc.constant('load' as const), running: short, waiting: short }),
  short.map((tenths) => ({ type: 'rate' as const, tokensPerSecond: tenths / 10 })),
  fc
    .record({ running: short, waiting: short, permille: fc.integer({ min: 0, max: 1000 }) })
    .map(({ running, waiting, permille }) => ({ type: 'load' as const, running, waiting, kvUse: permille / 1000 })),
  fc.record({ type: fc.constant('gossip' as const), bytes: bytes(300) }),
);

function write(frames: Frame[]): Uint8Array {
  const out = new FrameWriter();
  let previous: number | undefined;
  for (const one of frames) previous = writeFrame(out, one, previous);
  return out.take();
}

function read(message: Uint8Array): Frame[] {
  const frames: Frame[] = [];
  readFrames(message, (one) => frames.push(one));
  return frames;
}

test('a frame is written without a search in the list of types', () => {
  const search = vi.spyOn(FRAME_TYPES as unknown as string[], 'indexOf');
  const out = new FrameWriter();
  writeFrame(out, { type: 'prefixes', of: 1, blocks: new Uint8Array(0) }, undefined);
  expect(out.take()[0]).toBe(24);
  expect(search).not.toHaveBeenCalled();
  search.mockRestore();
});

describe('frames', () => {
  test('any sequence of frames is read as it was written', () => {
    fc.assert(
      fc.property(fc.array(frame, { maxLength: 6 }), (frames) => {
        expect(read(write(frames))).toEqual(frames);
      }),
      { numRuns: 1000 },
    );
  });

  test('a message cut at any byte gives whole frames and then an error, never anything else', () => {
    fc.assert(
      fc.property(
        fc.array(frame, { minLength: 1, maxLength: 3 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (frames, at) => {
          const message = write(frames);
          const cut = message.subarray(0, Math.floor(at * (message.length - 1)));
          const got: Frame[] = [];
          try {
            readFrames(cut, (one) => got.push(one));
          } catch (error) {
            expect(error).toBeInstanceOf(WireError);
          }
          expect(got).toEqual(frames.slice(0, got.length));
          expect(got.length).toBeLessThan(frames.length);
        },
      ),
      { numRuns: 500 },
    );
  });

  test('random bytes are an error or frames, and never throw anything else', () => {
    fc.assert(
      fc.property(bytes(200), (message) => {
        try {
          read(message);
        } catch (error) {
          expect(error).toBeInstanceOf(WireError);
        }
      }),
      { numRuns: 5000 },
    );
  });

  test('a length that points past the message is refused before anything is allocated', () => {
    const lie = new Uint8Array([3, 1, 0, 0xff, 0xff, 0xff, 0x7f, 1, 2, 3]); // DATA of 2^28 bytes
    expect(() => read(lie)).toThrow(/at most/);
    const shorter = new Uint8Array([3, 1, 0, 100, 1, 2, 3]);
    expect(() => read(shorter)).toThrow(/past the message/);
  });

  test('a report with timings has its own type; without them an older end reads the same bytes as before', () => {
    const usage = { ...NO_USAGE, prompt: 3, completion: 4, complete: true };
    const report = { type: 'report' as const, stream: 1, usage, name: { requestId: 'r', attempt: 1, receipt: 'k' } };
    expect([...write([report])]).toEqual([7, 1, 2 | 16, 3, 4, 1, 114, 1, 1, 107]);
    const timed = write([{ ...report, timings: { status: 200, firstMs: 5, totalMs: 6 } }]);
    expect([...timed]).toEqual([TIMED_REPORT_FRAME, 1, 200, 1, 5, 6, 2 | 16, 3, 4, 1, 114, 1, 1, 107]);
  });

  test('audio and images have a flag; without them a report has the bytes of before', () => {
    const usage = { ...NO_USAGE, complete: true };
    expect([...write([{ type: 'report', stream: 1, usage }])]).toEqual([7, 1, 2, 0, 0]);
    const withBoth = { ...usage, audioMs: 5, images: 2 };
    expect([...write([{ type: 'report', stream: 1, usage: withBoth }])]).toEqual([7, 1, 2 | 32, 0, 0, 5, 2]);
    expect(withoutMedia(withBoth)).toEqual(usage);
  });

  test('timings that cannot be are refused: a status that HTTP does not have, a first byte after the end', () => {
    const usage = { ...NO_USAGE, complete: true };
    const timed = (timings: ReportedTimings) => () => read(write([{ type: 'report', stream: 1, usage, timings }]));
    for (const status of [1, 199, 600, Number.MAX_SAFE_INTEGER])
      expect(timed({ status, firstMs: 1, totalMs: 2 })).toThrow(/status/);
    expect(timed({ status: 200, firstMs: 3, totalMs: 2 })).toThrow(/first byte/);
  });

  test('a number has one spelling only', () => {
    expect(() => read(new Uint8Array([4, 1, 0x80, 0x00]))).toThrow(/shortest/);
    expect(() => read(new Uint8Array([4, 1, ...Array(9).fill(0xff), 1]))).toThrow(/2\^53/);
  });

  test('an ordinary request and its answer stay within the bytes that the tunnel may add', () => {
    const open = write([
      {
        type: 'open',
        stream: 20_000,
        resume: false,
        requestId: '3b2f1c9e-7a54-4f0a-9a76-0d2f64c1f111',
        attempt: 1,
        answerOffset: 0,
        endpoint: 1,
        headers: [
          ['content-type', 'application/json'],
          ['accept', 'application/json'],
        ],
        edits: [],
        streaming: false,
        dropUsage: false,
        firstByteMs: 900_000,
        stallMs: 120_000,
        receipt: 'key_e436239b87dcaa540f18bbab',
        bodyLength: 300,
      },
      { type: 'data', stream: 20_000, offset: 0, bytes: new Uint8Array(300) },
      { type: 'end', stream: 20_000, offset: 300 },
    ]);
    expect(open.length - 300).toBeLessThanOrEqual(100);
    const accept = write([{ type: 'accept', stream: 20_000, bodyOffset: 0, bodyDone: false }]);
    const answer = write([
      {
        type: 'head',
        stream: 20_000,
        status: 200,
        engineTenths: 150,
        headers: [['content-type', 'application/json']],
      },
      { type: 'data', stream: 20_000, offset: 0, bytes: new Uint8Array(400) },
      { type: 'end', stream: 20_000, offset: 400 },
      {
        type: 'report',
        stream: 20_000,
        usage: {
          prompt: 20,
          completion: 128,
          cached: 0,
          reasoning: 0,
          estimated: false,
          complete: true,
          aborted: false,
        },
      },
    ]);
    const websocket = 6 + 8; // masked heads of a message up to 125 bytes and of a longer one
    expect(accept.length + answer.length - 400 + websocket).toBeLessThanOrEqual(40);
  });
});

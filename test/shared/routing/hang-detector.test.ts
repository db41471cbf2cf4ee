import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FirstByteTimes, type RequestShape } from '../../../shared/routing/hang/first-byte-times.ts';
import {
  isHanging,
  type NodeEvidence,
  type PeerEvidence,
  probeMs,
  type UnansweredRequest,
} from '../../../shared/routing/hang/hang-detector.ts';

const CHAT: RequestShape = { endpoint: 1, streaming: true, bytes: 500 };
const UNARY: RequestShape = { ...CHAT, streaming: false };

function known(shape: RequestShape, ms: number, count = 100) {
  const times = new FirstByteTimes();
  for (let n = 0; n < count; n++) times.add(shape, ms);
  return times.counts;
}

const waits = (shape: RequestShape, waitedMs: number, more: Partial<UnansweredRequest> = {}): UnansweredRequest => ({
  shape,
  waitedMs,
  waiting: true,
  moved: false,
  ...more,
});

const node = (silentMs: number, ...unanswered: UnansweredRequest[]): NodeEvidence => ({
  silentMs,
  unanswered,
  times: {},
});

const peer = (more: Partial<PeerEvidence> = {}): PeerEvidence => ({
  silentMs: 0,
  answeredAgoMs: 500,
  suspected: false,
  times: known(CHAT, 300),
  ...more,
});
const IDLE = peer({ answeredAgoMs: undefined, times: {} });
const SILENT = peer({ silentMs: 40_000, answeredAgoMs: 60_000 });

describe('an engine is taken to hang', () => {
  it('20 s after its last byte while a peer answers', () => {
    expect(isHanging(node(19_900, waits(CHAT, 19_900)), [peer()])).toBe(false);
    expect(isHanging(node(20_000, waits(CHAT, 20_000)), [peer()])).toBe(true);
  });

  it('25 s after its last byte where no peer was asked meanwhile', () => {
    expect(isHanging(node(24_000, waits(CHAT, 24_000)), [IDLE])).toBe(false);
    expect(isHanging(node(25_000, waits(CHAT, 25_000)), [IDLE])).toBe(true);
    const longAgo = peer({ answeredAgoMs: 60_000 });
    expect(isHanging(node(25_000, waits(CHAT, 25_000)), [longAgo])).toBe(true);
  });

  it('although its clients give up after 5 s and ask again', () => {
    const left = Array.from({ length: 4 }, () => waits(UNARY, 5_000, { waiting: false }));
    expect(isHanging(node(20_000, ...left), [peer({ times: known(UNARY, 1_000) })])).toBe(true);
  });

  it('of many unary requests by their typical time: one alone may be an answer of many tokens', () => {
    const times = new FirstByteTimes();
    for (let n = 0; n < 90; n++) times.add(UNARY, 4_000);
    for (let n = 0; n < 10; n++) times.add(UNARY, 60_000);
    const mixed = peer({ times: times.counts });
    expect(isHanging(node(30_000, waits(UNARY, 30_000)), [mixed])).toBe(false);
    const eight = Array.from({ length: 8 }, () => waits(UNARY, 25_000));
    expect(isHanging(node(30_000, ...eight), [mixed])).toBe(true);
  });
});

describe('an engine is not taken to hang', () => {
  it('if no other node serves the model, however long the prefill', () => {
    expect(isHanging(node(600_000, waits(CHAT, 600_000)), [])).toBe(false);
  });

  it('if its peers answer no request either', () => {
    expect(isHanging(node(60_000, waits(CHAT, 60_000)), [SILENT, SILENT])).toBe(false);
  });

  it('where the only other node that is free is taken to hang itself', () => {
    expect(isHanging(node(60_000, waits(CHAT, 60_000)), [{ ...IDLE, suspected: true }])).toBe(false);
  });

  it('while a prompt of its size may still be in prefill, and small requests wait behind it', () => {
    const large = { ...CHAT, bytes: 400_000 };
    const evidence = node(40_000, waits(large, 40_000), waits(CHAT, 39_000));
    expect(isHanging(evidence, [peer()])).toBe(false);
    // The peers' times show how long such a prompt takes.
    const informed = peer({ times: { ...known(CHAT, 300), ...known(large, 2_000) } });
    expect(isHanging(evidence, [informed])).toBe(true);
  });

  it('where it was as slow with such requests before', () => {
    const slow = { ...node(30_000, waits(CHAT, 30_000)), times: known(CHAT, 12_000) };
    expect(isHanging(slow, [peer()])).toBe(false);
  });

  it('by requests that hung elsewhere before, unless for three times as long: they may be the cause', () => {
    expect(isHanging(node(50_000, waits(CHAT, 50_000, { moved: true })), [peer()])).toBe(false);
    expect(isHanging(node(60_000, waits(CHAT, 60_000, { moved: true })), [peer()])).toBe(true);
    expect(isHanging(node(50_000, waits(CHAT, 50_000, { moved: true }), waits(CHAT, 20_000)), [peer()])).toBe(true);
  });

  it('by requests whose clients left within a moment', () => {
    const left = Array.from({ length: 60 }, () => waits(CHAT, 1_500, { waiting: false }));
    expect(isHanging(node(30_000, ...left), [peer()])).toBe(false);
  });

  it('before it has been silent for 20 s, with any other evidence', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 19_999 }),
        fc.array(fc.integer({ min: 0, max: 3_600_000 }), { maxLength: 20 }),
        fc.boolean(),
        (silentMs, ages, streaming) => {
          const unanswered = ages.map((ms) => waits({ ...CHAT, streaming }, ms));
          expect(isHanging(node(silentMs, ...unanswered), [peer(), IDLE])).toBe(false);
        },
      ),
    );
  });

  it('more than once in a hundred silences where its times are those of its peers', () => {
    const random = fc.sample(fc.double({ min: 1e-9, max: 1 - 1e-9, noNaN: true }), { numRuns: 60_000, seed: 7 });
    let next = 0;
    /** Exponential, with a mean of 8 s: responses of many tokens, under the highest load. */
    const draw = () => -8_000 * Math.log(random[next++ % random.length] ?? 0.5);
    const times = new FirstByteTimes();
    for (let n = 0; n < 400; n++) times.add(UNARY, draw());
    const others = peer({ times: times.counts });
    let wrong = 0;
    for (let trial = 0; trial < 2_000; trial++) {
      const count = 1 + (trial % 8);
      // All began together, and none has been answered after 25 s. That is rare without a hang, and must not be taken
      // for one.
      const ages = Array.from({ length: count }, draw);
      const unanswered = ages.filter((ms) => ms > 25_000).map(() => waits(UNARY, 25_000));
      if (unanswered.length === count && isHanging(node(25_000, ...unanswered), [others])) wrong++;
    }
    expect(wrong).toBeLessThan(20);
  });
});

describe('the probe of a suspected node', () => {
  it('is given several times what such requests take, 2 s at least and 20 s at most', () => {
    expect(probeMs(CHAT, [known(CHAT, 100)])).toBe(2_000);
    expect(probeMs(CHAT, [known(CHAT, 2_000)])).toBe(3 * 2_048);
    expect(probeMs(CHAT, [known(CHAT, 60_000)])).toBe(20_000);
  });
});

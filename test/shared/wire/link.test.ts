import { describe, expect, test } from 'vitest';
import { encodeFrame } from '../../../shared/wire/frame-codec.ts';
import { FrameMeter, UNSENT_MAX_BYTES } from '../../../shared/wire/frame-limits.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { Link } from '../../../shared/wire/link.ts';
import { OutboundStream } from '../../../shared/wire/outbound-stream.ts';
import { MESSAGE_MAX_BYTES, STREAM_WINDOW_BYTES } from '../../../shared/wire/protocol-constants.ts';

/** A link with captured messages; the test runs its turns. */
function caught(windows = { send: 4 * 1024 * 1024, receive: 4 * 1024 * 1024 }) {
  const messages: Uint8Array[] = [];
  const turns: (() => void)[] = [];
  const state = { busy: false, stuck: 0, now: 0 };
  const link = new Link(
    {
      send: (message) => messages.push(message),
      busy: () => state.busy,
      schedule: (flush) => turns.push(flush),
      stuck: () => {
        state.stuck++;
      },
    },
    windows,
    new FrameMeter(() => state.now),
  );
  const turn = () => {
    for (const flush of turns.splice(0)) flush();
    return messages.splice(0);
  };
  return { link, turn, state };
}

function framesOf(messages: Uint8Array[]): Frame[] {
  const reader = caught({ send: 0, receive: Number.MAX_SAFE_INTEGER });
  const frames: Frame[] = [];
  for (const message of messages) reader.link.receive(message, (frame) => frames.push(frame));
  return frames;
}

function sender(outgoing: OutboundStream, stream: number) {
  return { outgoing, ending: (): Frame[] => [{ type: 'end', stream, offset: outgoing.length }] };
}

describe('a link', () => {
  test('puts the frames of one turn into one message, control frames first, the end behind the data', () => {
    const { link, turn } = caught();
    const outgoing = new OutboundStream();
    link.attach(7, sender(outgoing, 7));
    outgoing.push(new Uint8Array(10));
    outgoing.finish();
    link.kick(7);
    link.put({ type: 'accept', stream: 7, bodyOffset: 0, bodyDone: false });
    const messages = turn();
    expect(messages).toHaveLength(1);
    expect(framesOf(messages).map(({ type }) => type)).toEqual(['accept', 'data', 'end']);
  });

  test('lets a head wait one turn for the data that follows it, and no longer', () => {
    const { link, turn } = caught();
    const head: Frame = { type: 'head', stream: 7, status: 200, engineTenths: 1, headers: [] };
    const outgoing = new OutboundStream();
    link.attach(7, sender(outgoing, 7));
    link.putSoon(head);
    expect(turn()).toEqual([]);
    outgoing.push(new Uint8Array(10));
    link.kick(7);
    const together = turn();
    expect(together).toHaveLength(1);
    expect(framesOf(together).map(({ type }) => type)).toEqual(['head', 'data']);
    link.putSoon(head);
    expect(turn()).toEqual([]);
    expect(framesOf(turn()).map(({ type }) => type)).toEqual(['head']);
    link.putSoon(head);
    link.put({ type: 'end', stream: 7, offset: 10 });
    expect(turn()).toHaveLength(1);
    expect(turn(), 'nothing is left to send').toEqual([]);
  });

  test('holds frames back while the socket is busy and sends them merged when it drains', () => {
    const { link, turn, state } = caught();
    state.busy = true;
    const outgoing = new OutboundStream();
    link.attach(1, sender(outgoing, 1));
    for (let i = 0; i < 5; i++) {
      outgoing.push(new Uint8Array(100));
      link.kick(1);
      expect(turn()).toHaveLength(0);
    }
    state.busy = false;
    link.flush();
    expect(turn()).toHaveLength(1);
  });

  test('a short body goes before a long one', () => {
    const { link, turn } = caught();
    const long = new OutboundStream();
    const short = new OutboundStream();
    for (let i = 0; i < 16; i++) long.push(new Uint8Array(64 * 1024));
    long.credit(0, 4 * 1024 * 1024);
    short.push(new Uint8Array(10));
    short.finish();
    link.attach(1, sender(long, 1));
    link.attach(2, sender(short, 2));
    const frames = framesOf(turn());
    const place = frames.findIndex((frame) => 'stream' in frame && frame.stream === 2);
    expect(place).toBe(0);
  });

  test('the socket window bounds all streams together, its last part is for small ones; a body without bytes still ends', () => {
    const { link, turn } = caught({ send: 100_000, receive: 1 });
    const bodies = [1, 2, 3].map((stream) => {
      const outgoing = new OutboundStream();
      outgoing.push(new Uint8Array(STREAM_WINDOW_BYTES));
      link.attach(stream, sender(outgoing, stream));
      return outgoing;
    });
    const empty = new OutboundStream();
    empty.finish();
    link.attach(4, sender(empty, 4));
    const frames = framesOf(turn());
    const sent = frames.reduce((sum, frame) => sum + (frame.type === 'data' ? frame.bytes.length : 0), 0);
    expect(sent).toBe(87_500);
    expect(frames.some((frame) => frame.type === 'end' && frame.stream === 4)).toBe(true);
    expect(bodies.every((outgoing) => outgoing.unsent > 0)).toBe(true);
    const token = new OutboundStream();
    token.push(new Uint8Array(200));
    link.attach(5, sender(token, 5));
    expect(framesOf(turn()).map((frame) => 'stream' in frame && frame.stream)).toEqual([5]);
  });

  test('a peer that sends more than the socket was granted is an error', () => {
    const out = caught({ send: 1_000_000, receive: 0 });
    const outgoing = new OutboundStream();
    outgoing.push(new Uint8Array(1001));
    out.link.attach(1, sender(outgoing, 1));
    const strict = caught({ send: 0, receive: 1000 });
    const [message] = out.turn();
    expect(() => strict.link.receive(message ?? new Uint8Array(0), () => {})).toThrow(/granted/);
  });

  test('credit for the socket comes back when half of what is free was consumed, and not before', () => {
    const { link, turn } = caught({ send: 0, receive: 1000 });
    const other = caught({ send: 1000, receive: 1 });
    const outgoing = new OutboundStream();
    outgoing.push(new Uint8Array(600));
    other.link.attach(1, sender(outgoing, 1));
    for (const message of other.turn()) link.receive(message, () => {});
    link.consumed(399);
    expect(turn()).toHaveLength(0);
    link.consumed(1);
    const [credit] = turn();
    expect(() => other.link.receive(credit ?? new Uint8Array(0), () => {})).not.toThrow();
    expect(other.link.state.sendLimit).toBe(1400);
    expect(link.buffered).toBe(200);
  });

  test('credit that no reader is left to return is granted again, and its loss is reported once', () => {
    const { link, turn } = caught();
    const { link: peer, turn: sent } = caught();
    const outgoing = new OutboundStream();
    peer.attach(1, sender(outgoing, 1));
    outgoing.push(new Uint8Array(STREAM_WINDOW_BYTES));
    peer.kick(1);
    for (const message of sent()) link.receive(message, () => {});
    expect(link.reclaim()).toBe(STREAM_WINDOW_BYTES);
    expect(link.reclaim()).toBe(0);
    for (const message of turn()) peer.receive(message, () => {});
    expect(peer.state.sendLimit - peer.state.sent).toBe(4 * 1024 * 1024);
  });

  test('what stalled readers hold does not keep credit from the others, however much goes by', () => {
    const window = 4 * 1024 * 1024;
    const near = caught({ send: 0, receive: window });
    const far = caught({ send: window, receive: 1 });
    const stalled = new OutboundStream();
    stalled.push(new Uint8Array(3 * 1024 * 1024));
    stalled.credit(0, 3 * 1024 * 1024);
    far.link.attach(1, sender(stalled, 1));
    for (const message of far.turn()) near.link.receive(message, () => {});
    expect(near.link.buffered).toBe(3 * 1024 * 1024);
    for (let stream = 2; stream < 60; stream++) {
      const outgoing = new OutboundStream();
      outgoing.push(new Uint8Array(200 * 1024));
      far.link.attach(stream, sender(outgoing, stream));
      for (const message of far.turn()) {
        near.link.receive(message, (frame) => {
          if (frame.type === 'data') near.link.consumed(frame.bytes.length);
        });
      }
      for (const message of near.turn()) far.link.receive(message, () => {});
      expect(outgoing.unsent).toBe(0);
      far.link.detach(stream);
    }
  });

  test.each([1, 4, 8, 15, 16])('the end stays behind a body of %i full frames, wherever messages begin', (frames) => {
    const { link, turn } = caught();
    const outgoing = new OutboundStream();
    outgoing.credit(0, 4 * 1024 * 1024);
    for (let n = 0; n < frames; n++) outgoing.push(new Uint8Array(64 * 1024));
    outgoing.finish();
    link.attach(1, sender(outgoing, 1));
    const ends: number[] = [];
    let length = 0;
    for (const frame of framesOf(turn())) {
      if (frame.type === 'data') length += frame.bytes.length;
      if (frame.type === 'end') ends.push(length);
    }
    expect(ends).toEqual([frames * 64 * 1024]);
  });

  test('a window of any size is used up without a frame that carries nothing', () => {
    for (const send of [65_537, 100_003, 1_227_601]) {
      const { link, turn } = caught({ send, receive: 1 });
      const outgoing = new OutboundStream();
      outgoing.credit(0, 4 * 1024 * 1024);
      outgoing.push(new Uint8Array(2 * 1024 * 1024));
      link.attach(1, sender(outgoing, 1));
      const sizes = framesOf(turn()).flatMap((frame) => (frame.type === 'data' ? [frame.bytes.length] : []));
      expect(Math.min(...sizes)).toBeGreaterThan(0);
    }
  });

  test('ten thousand frames that are put at once go out in messages that a peer takes, in their order', () => {
    const { link, turn } = caught();
    for (let stream = 1; stream <= 10_000; stream++) {
      link.put({ type: 'reset', stream, code: 'failed', message: 'x'.repeat(200) });
    }
    const messages = turn();
    for (const message of messages) expect(message.length).toBeLessThan(MESSAGE_MAX_BYTES);
    const streams = framesOf(messages).map((frame) => ('stream' in frame ? frame.stream : 0));
    expect(streams).toEqual(Array.from({ length: 10_000 }, (_, n) => n + 1));
  });

  test('the end of a body never overtakes its last bytes, wherever messages are full', () => {
    for (const length of [200_000, 262_000, 262_144, 262_200, 300_000, 524_288, 600_000]) {
      const { link, turn } = caught();
      const outgoing = new OutboundStream();
      outgoing.credit(0, 4 * 1024 * 1024);
      for (let at = 0; at < length; at += 65_536) outgoing.push(new Uint8Array(Math.min(65_536, length - at)));
      outgoing.finish();
      link.attach(1, sender(outgoing, 1));
      const frames = framesOf(turn());
      expect(frames.at(-1)).toEqual({ type: 'end', stream: 1, offset: length });
      const offsets = frames.flatMap((frame) => (frame.type === 'data' ? [frame.offset] : []));
      expect(offsets).toEqual(offsets.toSorted((a, b) => a - b));
    }
  });

  test('counters saved when no stream was open continue on a new link', () => {
    const first = caught({ send: 500, receive: 500 });
    const outgoing = new OutboundStream();
    outgoing.push(new Uint8Array(300));
    outgoing.finish();
    first.link.attach(1, sender(outgoing, 1));
    first.turn();
    const second = new Link(
      { send: () => {}, busy: () => false, schedule: (flush) => flush(), stuck: () => {} },
      { send: 0, receive: 500 },
      new FrameMeter(() => 0),
      first.link.state,
    );
    expect(second.state).toEqual(first.link.state);
    expect(second.state.sent).toBe(300);
  });

  test('a peer that leaves more unsent than any reader would loses its socket', () => {
    const { link, turn, state } = caught();
    state.busy = true;
    const update = new Uint8Array(16_000);
    for (let n = 0; n * update.length < UNSENT_MAX_BYTES * 2; n++) link.put({ type: 'record', sequence: n, update });
    expect(state.stuck).toBe(1);
    state.busy = false;
    link.flush();
    expect(turn(), 'nothing is kept for it').toHaveLength(0);
  });

  test('DATA without a byte is refused: it would cost time and no credit', () => {
    const message = encodeFrame({ type: 'data', stream: 1, offset: 0, bytes: new Uint8Array(0) });
    expect(() => caught().link.receive(message, () => {})).toThrow('DATA without a byte');
  });
});

import { expect, it } from 'vitest';
import { newAcceptTimeout } from '../../../shared/attempts/accept-timeout.ts';
import type { AttemptResult } from '../../../shared/attempts/attempt-request.ts';
import { OutboundAttempt } from '../../../shared/attempts/outbound-attempt.ts';
import { encodeFrame, readFrames } from '../../../shared/wire/frame-codec.ts';
import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import { Link } from '../../../shared/wire/link.ts';

const PIECE = 32 * 1024;

/** A stream that its node has accepted, and the results that its caller received. */
function accepted(bytes = 2): { upstream: OutboundAttempt; told: AttemptResult[]; credited: () => number } {
  const request = { endpoint: 1, acceptMs: 1_000, answerOffset: 0, edits: [], headers: [] };
  const host = {
    now: () => 1_000_000,
    patientNow: () => 1_000_000,
    accepts: newAcceptTimeout(),
    onFirstByte: () => {},
    onOver: () => {},
    renumber: () => 2,
  };
  const upstream = new OutboundAttempt(1, request as never, null, host);
  const told: AttemptResult[] = [];
  upstream.attachCaller((result) => told.push(result));
  let credited = 0;
  const port = {
    send: (message: Uint8Array) =>
      readFrames(message, (frame) => {
        if (frame.type === 'credit' && frame.stream === 0) credited = frame.consumed;
      }),
    busy: () => false,
    schedule: (flush: () => void) => flush(),
    stuck: () => {},
  };
  const link = new Link(port, { send: 1 << 20, receive: 1 << 20 }, new FrameMeter(() => 0));
  upstream.connect(link);
  upstream.onFrame({ type: 'accept', stream: 1, bodyOffset: 0, bodyDone: true });
  upstream.onFrame({ type: 'head', stream: 1, status: 200, engineTenths: 1, headers: [] });
  for (let offset = 0; offset < bytes; offset += PIECE) {
    const piece = new Uint8Array(Math.min(PIECE, bytes - offset));
    link.receive(encodeFrame({ type: 'data', stream: 1, offset, bytes: piece }), (frame) => upstream.onFrame(frame));
  }
  return { upstream, told, credited: () => credited };
}

it('an answer that is all here goes out though its message broke off behind it', () => {
  const { upstream, told } = accepted();
  upstream.onFrame({ type: 'end', stream: 1, offset: 2 });
  expect(told).toEqual([]);
  upstream.disconnect();
  expect(told).toMatchObject([{ kind: 'whole', status: 200 }]);
});

it('a partial answer waits for its node, and fails where that node does not come back', () => {
  const { upstream, told } = accepted();
  upstream.disconnect();
  expect(told).toEqual([]);
  upstream.tick(1_000_000 + 60_000);
  expect(told).toMatchObject([{ kind: 'failure', code: 'lost' }]);
});

it.each([
  { how: 'shares a message with the head of a fast engine', acceptedAt: 8, headAt: 8, engineMs: 3 },
  { how: 'waited at the node for a slow engine', acceptedAt: 10, headAt: 45, engineMs: 40 },
  { how: 'came at once', acceptedAt: 5, headAt: 50, engineMs: 40 },
])('the round trip contains neither the engine nor the wait of an acknowledgment that $how', (times) => {
  const { acceptedAt, headAt, engineMs } = times;
  let now = 0;
  const clock = () => now;
  const host = { now: clock, patientNow: clock, onFirstByte: () => {}, onOver: () => {}, renumber: () => 2 };
  const request = { endpoint: 1, acceptMs: 1_000, answerOffset: 0, edits: [], headers: [] };
  const upstream = new OutboundAttempt(1, request as never, null, { ...host, accepts: newAcceptTimeout() });
  const told: AttemptResult[] = [];
  upstream.attachCaller((result) => told.push(result));
  const port = { send: () => {}, busy: () => false, schedule: (flush: () => void) => flush(), stuck: () => {} };
  upstream.connect(new Link(port, { send: 1 << 20, receive: 1 << 20 }, new FrameMeter(() => 0)));
  now = acceptedAt;
  upstream.onFrame({ type: 'accept', stream: 1, bodyOffset: 0, bodyDone: true });
  now = headAt;
  upstream.onFrame({ type: 'head', stream: 1, status: 200, engineTenths: 10 * engineMs, headers: [] });
  upstream.onMessageEnd();
  expect(told).toMatchObject([{ head: { forwardMs: 5, engineMs } }]);
});

/**
 * Opens attempts at one node, which acknowledges each after this many milliseconds, or never. Returns after how long
 * each unanswered one was given up.
 */
function openings(...acknowledgedAfter: (number | undefined)[]): number[] {
  let now = 0;
  const givenUp: number[] = [];
  const accepts = newAcceptTimeout();
  const clock = () => now;
  const host = { now: clock, patientNow: clock, accepts, onFirstByte: () => {}, onOver: () => {}, renumber: () => 2 };
  const port = { send: () => {}, busy: () => false, schedule: (flush: () => void) => flush(), stuck: () => {} };
  for (const [stream, after] of acknowledgedAfter.entries()) {
    const request = { endpoint: 1, acceptMs: 1_000, answerOffset: 0, edits: [], headers: [] };
    const upstream = new OutboundAttempt(stream, request as never, null, host);
    upstream.connect(new Link(port, { send: 1 << 20, receive: 1 << 20 }, new FrameMeter(() => 0)));
    const openedAt = now;
    for (; !upstream.over && !upstream.accepted; now += 10) {
      if (now - openedAt === after) upstream.onFrame({ type: 'accept', stream, bodyOffset: 0, bodyDone: true });
      else upstream.tick(now);
    }
    if (upstream.over) givenUp.push(now - 10 - openedAt);
  }
  return givenUp;
}

it('a fast node has a second to acknowledge an opening', () => {
  expect(openings(10, 20, 10, undefined)).toEqual([1_000]);
});

it('a node that took almost a second has longer the next time, and is not given up', () => {
  expect(openings(900, 1_500, 2_000, 1_900)).toEqual([]);
});

it('a node that did not acknowledge in time has twice as long, and never more than ten seconds', () => {
  expect(openings(undefined, undefined, undefined, undefined, undefined)).toEqual([1_000, 2_000, 4_000, 8_000, 10_000]);
});

it('a stream that leaves an open socket returns the credit for unread bytes', () => {
  const { upstream, credited } = accepted(8 * PIECE);
  expect(credited()).toBe(0);
  upstream.disconnect(0);
  expect(credited()).toBe(8 * PIECE);
  // Only once: bytes that are read or discarded later do not count for that socket.
  upstream.tick(1_000_000 + 60_000);
  upstream.cancel();
  expect(credited()).toBe(8 * PIECE);
});

type Step = (attempt: OutboundAttempt) => void;
const cancel: Step = (attempt) => attempt.cancel();
const fail: Step = (attempt) => attempt.fail('failed', 'the caller does not ask for the response');
const park: Step = (attempt) => attempt.park();
const disconnect: Step = (attempt) => attempt.disconnect();
const reset: Step = (attempt) => attempt.onFrame({ type: 'reset', stream: 1, code: 'engine_closed', message: '' });
const end: Step = (attempt) => attempt.onFrame({ type: 'end', stream: 1, offset: 8 * PIECE });
const read: Step = ({ answer }) => answer.pipeTo({ wantsData: true, take: () => {}, end: () => {}, fail: () => {} });

it.each([
  ['its client disconnects', [cancel]],
  ['it fails', [fail]],
  ['its reader stalls, and then disconnects', [park, cancel]],
  ['its node breaks it off, and its reader disconnects', [reset, cancel]],
  ['its node breaks it off, and its reader has read the rest', [reset, read]],
  ['its socket breaks, and its client disconnects', [disconnect, cancel]],
  ['it is complete and its client disconnects', [end, cancel]],
  ['it is complete and read', [end, read]],
])('the credit for a response is returned, once, after %s', (_, steps) => {
  const { upstream, credited } = accepted(8 * PIECE);
  for (const step of steps) step(upstream);
  expect([upstream.over, credited()]).toEqual([true, 8 * PIECE]);
  upstream.cancel();
  expect(credited()).toBe(8 * PIECE);
});

/**
 * A request that arrived as a call: its response is returned whole if it is small and fast, and otherwise must be
 * fetched.
 */
import { expect, test } from 'vitest';
import { steadyNow } from '../../../gateway/platform/steady-clock.ts';
import type { CallResult } from '../../../gateway/tunnel/call/call-encoding.ts';
import { PendingCalls } from '../../../gateway/tunnel/call/pending-calls.ts';
import { newAcceptTimeout } from '../../../shared/attempts/accept-timeout.ts';
import { OutboundAttempt } from '../../../shared/attempts/outbound-attempt.ts';
import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import { Link } from '../../../shared/wire/link.ts';
import { RESUME_WINDOW_MS } from '../../../shared/wire/protocol-constants.ts';

const STREAM = 1;
const CALL_MS = 200;
const FETCH: CallResult = { kind: 'fetch' };
const port = { send: () => {}, busy: () => false, schedule: (flush: () => void) => flush(), stuck: () => {} };

/** A call that its node has acknowledged. */
function call() {
  const calls = new PendingCalls();
  const answers: CallResult[] = [];
  const host = {
    now: steadyNow,
    patientNow: steadyNow,
    accepts: newAcceptTimeout(),
    onOver: () => {},
    onFirstByte: () => {},
    renumber: () => STREAM,
  };
  const request = { requestId: 'r', attempt: 1, headers: [], edits: [], answerOffset: 0, acceptMs: 1_000 };
  const upstream = new OutboundAttempt(STREAM, request as never, null, host);
  calls.add(upstream, (answer) => answers.push(answer));
  upstream.connect(new Link(port, { send: 1 << 20, receive: 1 << 20 }, new FrameMeter(() => 0)));
  upstream.onFrame({ type: 'accept', stream: STREAM, bodyOffset: 0, bodyDone: true });
  upstream.onFrame({ type: 'head', stream: STREAM, status: 200, engineTenths: 1, headers: [] });
  let offset = 0;
  return {
    answers,
    later: (ms: number) => calls.tick(steadyNow() + ms),
    /** True if the response still waits for its Worker `ms` later. */
    waits(ms: number) {
      upstream.tick(steadyNow() + ms);
      return !upstream.over;
    },
    /** Sends `bytes` more bytes, in a separate message. */
    say(bytes: number, isEnd = false) {
      upstream.onFrame({ type: 'data', stream: STREAM, offset, bytes: new Uint8Array(bytes) });
      offset += bytes;
      if (isEnd) upstream.onFrame({ type: 'end', stream: STREAM, offset });
      upstream.onMessageEnd();
    },
  };
}

test('a small answer goes back whole', () => {
  const { answers, say } = call();
  say(1_000);
  expect(answers).toEqual([]);
  say(1_000, true);
  expect(answers).toMatchObject([{ kind: 'whole', status: 200, bytes: { length: 2_000 } }]);
});

test('an answer that is late is to be fetched', () => {
  const { answers, say, later } = call();
  say(1_000);
  later(CALL_MS - 100);
  expect(answers).toEqual([]);
  later(CALL_MS);
  expect(answers).toEqual([FETCH]);
});

test('an answer that is large is to be fetched at once: it does not wait as long as a small one may', () => {
  const { answers, say } = call();
  say(40_000);
  expect(answers).toEqual([]);
  say(40_000);
  expect(answers).toEqual([FETCH]);
});

test('an answer waits for a Worker that is not known to be fast, and for no Worker longer than an agent keeps it', () => {
  const { say, later, waits } = call();
  say(1_000);
  later(CALL_MS);
  expect(waits(2_500)).toBe(true);
  expect(waits(RESUME_WINDOW_MS)).toBe(false);
});

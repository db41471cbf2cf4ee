/** An attempt with a response that is held for a caller, when the link to its node breaks and comes back. */
import { expect, it } from 'vitest';
import { SessionAttempts } from '../../../shared/sessions/session-attempts.ts';
import { UsageSettlement } from '../../../shared/usage/usage-settlement.ts';
import { readFrames } from '../../../shared/wire/frame-codec.ts';
import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { Link } from '../../../shared/wire/link.ts';

/** A link, and the OPEN frames that it sent. */
function newLink(): { link: Link; opened: () => Extract<Frame, { type: 'open' }>[] } {
  const frames: Frame[] = [];
  const port = {
    send: (message: Uint8Array) => readFrames(message, (frame) => frames.push(frame)),
    busy: () => false,
    schedule: (flush: () => void) => flush(),
    stuck: () => {},
  };
  const link = new Link(port, { send: 1 << 20, receive: 1 << 20 }, new FrameMeter(() => 0));
  return { link, opened: () => frames.filter((frame) => frame.type === 'open') };
}

/** An attempt that its node has accepted on a link that is lost. */
function lost() {
  const session = new SessionAttempts(new UsageSettlement('session'), {
    now: () => 0,
    patientNow: () => 0,
    nextStream: () => 1,
    unknownMax: 1,
    resets: new Set(),
    onReport: () => {},
    onOver: () => {},
    compare: () => {},
    onSuspicion: () => {},
  });
  const { link } = newLink();
  session.connect(link);
  const request = { requestId: 'request', attempt: 1, endpoint: 1, acceptMs: 1_000, receipt: '', bodyLength: 0 };
  const rest = { answerOffset: 0, edits: [], headers: [], firstByteMs: 0, stallMs: 0, streaming: false };
  const outbound = session.open({ ...request, ...rest, resume: false, dropUsage: false } as never, null);
  session.onFrame(link, { type: 'accept', stream: 1, bodyOffset: 0, bodyDone: true }, new Set());
  session.disconnect();
  return { session, outbound };
}

it('leaves the stream to the link on which its caller may get the response', () => {
  const { session, outbound } = lost();
  outbound.listener.hold(1_000);
  const { link, opened } = newLink();
  session.connect(link);
  expect(opened()).toEqual([]);
  outbound.attachCaller(() => {});
  session.reconnect(outbound);
  session.reconnect(outbound);
  expect(opened()).toMatchObject([{ requestId: 'request', resume: true }]);
});

it('continues at once if it has its caller', () => {
  const { session, outbound } = lost();
  outbound.attachCaller(() => {});
  const { link, opened } = newLink();
  session.connect(link);
  expect(opened()).toMatchObject([{ requestId: 'request', resume: true }]);
});

/** Reports become records: each attempt gives one, and an agent may forget a report only if no request waits for it. */
import { describe, expect, it } from 'vitest';
import { newAcceptTimeout } from '../../../shared/attempts/accept-timeout.ts';
import { OutboundAttempt } from '../../../shared/attempts/outbound-attempt.ts';
import type { TokenBound } from '../../../shared/attempts/token-bound.ts';
import { UsageSettlement } from '../../../shared/usage/usage-settlement.ts';
import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import { Link } from '../../../shared/wire/link.ts';
import { NO_USAGE } from '../../../shared/wire/reported-usage.ts';

const USAGE = { ...NO_USAGE, prompt: 1, completion: 2, complete: true };

function upstreamOf(stream: number, bound?: TokenBound): OutboundAttempt {
  const request = {
    requestId: `req-${stream}`,
    attempt: 1,
    resume: false,
    answerOffset: 0,
    endpoint: 1,
    headers: [],
    edits: [],
    streaming: true,
    dropUsage: false,
    firstByteMs: 0,
    stallMs: 0,
    receipt: 'paid',
    acceptMs: 1_000,
    bodyLength: 0,
    ...(bound === undefined ? {} : { bound }),
  };
  return new OutboundAttempt(stream, request, null, {
    now: () => 0,
    patientNow: () => 0,
    accepts: newAcceptTimeout(),
    onOver: () => {},
    onFirstByte: () => {},
    renumber: () => stream,
  });
}

/** A link to an agent that sends nothing. */
function silentLink(): Link {
  const port = { send: () => {}, busy: () => false, schedule: () => {}, stuck: () => {} };
  return new Link(port, { send: 0, receive: 0 }, new FrameMeter(() => 0));
}

const nameOf = (stream: number) => ({ requestId: `req-${stream}`, attempt: 1, receipt: 'paid' });
/** `stream` is the stream that carries the report; `named` is the stream that named its attempt. */
const namedReport = (stream: number, named: number) => ({ stream, usage: USAGE, name: nameOf(named) });

describe('what may have been counted before', () => {
  it('is given out once in a second, with all that came meanwhile; everything else at once', () => {
    const settlement = new UsageSettlement('s');
    settlement.named(namedReport(1, 1), undefined, 5_000);
    expect(settlement.due).toBe(0);
    expect(settlement.take(5_000).streams).toEqual([1]);

    settlement.report(2, USAGE, upstreamOf(2), 5_100);
    expect(settlement.due).toBe(1);
    expect(settlement.take(5_100).records.map(({ stream }) => stream)).toEqual([2]);

    settlement.named(namedReport(3, 3), undefined, 5_200);
    settlement.report(4, USAGE, upstreamOf(4), 5_200);
    expect(settlement.due).toBe(0);
    expect(settlement.take(5_900)).toEqual({ records: [], streams: [] });
    expect(settlement.idle).toBe(false);
    const { records, streams } = settlement.take(6_000);
    expect(records.map(({ stream, repeated }) => [stream, repeated])).toEqual([
      [3, true],
      [4, false],
    ]);
    expect(streams).toEqual([3]); // the other stream is still open
  });

  it('does not wait for a clock that was set back', () => {
    const settlement = new UsageSettlement('s');
    settlement.named(namedReport(1, 1), undefined, 5_000_000);
    settlement.take(5_000_000);
    settlement.named(namedReport(2, 2), undefined, 1_000_000);
    expect(settlement.take(1_000_000).streams).toEqual([2]);
  });

  it('waits for nothing where there is no later', () => {
    const settlement = new UsageSettlement('s');
    settlement.named(namedReport(1, 1), undefined, 5_000);
    settlement.take(5_000);
    settlement.named(namedReport(2, 2), undefined, 5_001);
    expect(settlement.take(5_001, true).streams).toEqual([2]);
  });
});

describe('a report that is said again by name', () => {
  it('is of the upstream that goes on: its agent keeps the rest of the answer until that is over', () => {
    const settlement = new UsageSettlement('s');
    const open = upstreamOf(7);
    settlement.named(namedReport(7, 7), open, 5_000);
    const { records, streams } = settlement.take(5_000);
    expect(records).toMatchObject([{ stream: 7, requestId: 'req-7', repeated: true, course: { endpoint: 1 } }]);
    expect(streams).toEqual([]);
    settlement.ended(open, undefined, 5_100);
    expect(settlement.take(5_100)).toEqual({ records: [], streams: [7] });
  });

  it('is waited for no more where its attempt ended under another number before it went on', () => {
    const settlement = new UsageSettlement('s');
    const [before, after] = [upstreamOf(7), upstreamOf(7)];
    before.connect(silentLink());
    settlement.ended(before, 'lost', 4_000);
    expect(settlement.awaits(7)).toBe(true);
    after.stream = 8;
    settlement.named(namedReport(8, 7), after, 5_000);
    expect(settlement.awaits(7)).toBe(false);
  });

  it('is not of another one that goes by its number', () => {
    const settlement = new UsageSettlement('s');
    settlement.named(namedReport(7, 8), upstreamOf(7), 5_000);
    const { records, streams } = settlement.take(5_000);
    expect([records.map(({ requestId }) => requestId), streams]).toEqual([['req-8'], [7]]);
  });
});

it('what an agent used before it was killed is estimated at once: no report of it comes', () => {
  const settlement = new UsageSettlement('s');
  for (const [stream, failure] of [
    [7, 'gone'],
    [8, 'lost'],
  ] as const) {
    const upstream = upstreamOf(stream);
    upstream.connect(silentLink());
    upstream.onFrame({ type: 'accept', stream, bodyOffset: 0, bodyDone: true });
    settlement.ended(upstream, failure, 5_000);
  }
  const estimated = (now: number) => settlement.take(now).records.map(({ stream }) => stream);
  expect([estimated(5_000), estimated(34_999), estimated(35_000)]).toEqual([[7], [], [8]]);
});

it('images that a node reports for a chat are not charged, whether its attempt is known or proven', () => {
  const bound = { prompt: 100, completion: 100 };
  const opening = { receipt: 'paid', endpoint: 1, streamed: true, openedAt: 0, expiresAt: 1e6, bound };
  const late = { opening: () => opening, running: () => undefined, nextStream: () => 9 };
  const settlement = new UsageSettlement('s', late);
  const usage = { ...USAGE, images: 1_024, audioMs: 60_000 };
  settlement.report(1, usage, upstreamOf(1, bound), 0);
  settlement.named({ stream: 2, usage, name: nameOf(2) }, undefined, 0);
  const { records } = settlement.take(0, true);
  expect(records.map(({ images, audioMs }) => [images, audioMs])).toEqual([
    [undefined, undefined],
    [undefined, undefined],
  ]);
  expect(settlement.takeAnomalies()).toEqual(['over_bound', 'over_bound']);
});

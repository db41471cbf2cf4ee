import { expect, test } from 'vitest';
import { headersToEngine } from '../../../shared/openai/forwarded-headers.ts';
import { readTraceId } from '../../../shared/openai/traceparent.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const GOOD = `00-${TRACE}-00f067aa0ba902b7-01`;

function passed(headers: Record<string, string>) {
  return headersToEngine((name) => headers[name], undefined);
}

test('a trace goes on to the engine as it came', () => {
  expect(readTraceId(GOOD)).toBe(TRACE);
  expect(passed({ traceparent: GOOD, tracestate: 'congo=t61rcWkgMzE' })).toEqual([
    ['traceparent', GOOD],
    ['tracestate', 'congo=t61rcWkgMzE'],
  ]);
  // A later version may have more fields after its flags.
  expect(readTraceId(`01-${TRACE}-00f067aa0ba902b7-01-more`)).toBe(TRACE);
});

test.each([
  ['too short', GOOD.slice(0, -1)],
  ['version 00 with more than it knows', `${GOOD}-more`],
  ['the version that must not be', GOOD.replace('00-', 'ff-')],
  ['a trace of zeros', GOOD.replace(TRACE, '0'.repeat(32))],
  ['a parent of zeros', GOOD.replace('00f067aa0ba902b7', '0'.repeat(16))],
  ['capitals', GOOD.toUpperCase()],
  ['two headers in one', `${GOOD}, ${GOOD}`],
  ['another line', `01-${TRACE}-00f067aa0ba902b7-01-a\nb`],
])('what is no traceparent (%s) is dropped, and its tracestate with it', (_, traceparent) => {
  expect(readTraceId(traceparent)).toBeUndefined();
  expect(passed({ traceparent, tracestate: 'congo=t61rcWkgMzE' })).toEqual([]);
});

test('a tracestate alone says nothing', () => {
  expect(passed({ tracestate: 'congo=t61rcWkgMzE' })).toEqual([]);
});

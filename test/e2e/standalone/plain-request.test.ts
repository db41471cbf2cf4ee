/** Which requests may pass workerd's HTTP: only those that nobody could read in two ways. */
import { describe, expect, it } from 'vitest';
import { readPlain } from '../../../gateway/standalone/node/plain-request.ts';

const BODY = '{"model":"m"}';
const LENGTH = `content-length: ${BODY.length}`;

function written(lines: string[], body = BODY): Buffer {
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n${body}`, 'latin1');
}
const LINE = 'POST /v1/chat/completions HTTP/1.1';
const plain = written([LINE, 'Host: here', 'Authorization: Bearer sk', LENGTH]);

describe('a plain request', () => {
  it('is its head and its body, and what comes behind it is the next one', () => {
    const reading = readPlain(Buffer.concat([plain, plain.subarray(0, 9)]));
    if (reading.kind !== 'plain') throw new Error(reading.kind);
    expect(String(reading.head)).toBe(`${LINE}\r\nHost: here\r\nAuthorization: Bearer sk\r\n${LENGTH}`);
    expect(String(reading.body)).toBe(BODY);
    expect(reading.end).toBe(plain.length);
  });

  it('may come in pieces of any size', () => {
    for (let at = 1; at < plain.length; at++)
      expect(readPlain(plain.subarray(0, at)), `${at}`).toEqual({ kind: 'incomplete' });
  });

  it('may say that its connection stays, hold a tab, an empty value and a body of nothing', () => {
    const lines = [LINE, 'host: here', 'connection: Keep-Alive', 'x-one: a\tb', 'x-two:', 'content-length: 0'];
    expect(readPlain(written(lines, '')).kind).toBe('plain');
  });
});

const others: Record<string, Buffer> = {
  'another method': written(['PUT /v1/chat/completions HTTP/1.1', 'host: here', LENGTH]),
  'another path': written(['POST /admin/keys HTTP/1.1', 'host: here', LENGTH]),
  'a path with dots': written(['POST /v1/../admin/keys HTTP/1.1', 'host: here', LENGTH]),
  'a path with an escape': written(['POST /v1/%63hat HTTP/1.1', 'host: here', LENGTH]),
  'a query': written(['POST /v1/chat/completions?x=1 HTTP/1.1', 'host: here', LENGTH]),
  'a whole URL': written(['POST http://here/v1/chat/completions HTTP/1.1', 'host: here', LENGTH]),
  'HTTP/1.0': written(['POST /v1/chat/completions HTTP/1.0', 'host: here', LENGTH]),
  'no host': written([LINE, LENGTH]),
  'a host with a path': written([LINE, 'host: here/there@where', LENGTH]),
  'two hosts': written([LINE, 'host: here', 'host: there', LENGTH]),
  'no length': written([LINE, 'host: here']),
  'two lengths': written([LINE, 'host: here', LENGTH, LENGTH]),
  'a length with a sign': written([LINE, 'host: here', `content-length: +${BODY.length}`]),
  'a length of two values': written([LINE, 'host: here', `content-length: ${BODY.length}, ${BODY.length}`]),
  'a length in hexadecimal': written([LINE, 'host: here', 'content-length: 0x0d']),
  'a length with a zero before it': written([LINE, 'host: here', `content-length: 0${BODY.length}`]),
  'a larger body': written([LINE, 'host: here', `content-length: ${64 * 1024 + 1}`]),
  chunks: written([LINE, 'host: here', LENGTH, 'transfer-encoding: chunked']),
  'chunks by another spelling': written([LINE, 'host: here', LENGTH, 'Transfer-Encoding:\tchunked']),
  'a name with a space behind it': written([LINE, 'host: here', 'transfer-encoding : chunked', LENGTH]),
  'a line that goes on': written([LINE, 'host: here', 'x-one: a', ' b', LENGTH]),
  'a bare line feed': written([LINE, 'host: here', 'x-one: a\ntransfer-encoding: chunked', LENGTH]),
  'a bare carriage return': written([LINE, 'host: here', 'x-one: a\rtransfer-encoding: chunked', LENGTH]),
  'a NUL': written([LINE, 'host: here', 'x-one: a\0b', LENGTH]),
  'bytes above ASCII': written([LINE, 'host: here', 'x-one: \xe9', LENGTH]),
  'a line without a colon': written([LINE, 'host: here', 'x-one', LENGTH]),
  'a connection that closes': written([LINE, 'host: here', LENGTH, 'connection: close']),
  'an upgrade': written([LINE, 'host: here', LENGTH, 'upgrade: websocket']),
  'a wish to be asked first': written([LINE, 'host: here', LENGTH, 'expect: 100-continue']),
  'a hundred and one headers': written([
    LINE,
    'host: here',
    LENGTH,
    ...Array.from({ length: 99 }, (_, n) => `x-${n}: 1`),
  ]),
  'a head of 40 KiB': written([LINE, 'host: here', LENGTH, `x-one: ${'a'.repeat(40 * 1024)}`]),
  'an empty line before it': Buffer.concat([Buffer.from('\r\n'), plain]),
  'no HTTP at all': Buffer.from('\x16\x03\x01\x02\x00'),
};

it.each(Object.entries(others))('%s is for workerd', (_, bytes) => {
  expect(readPlain(bytes)).toEqual({ kind: 'other' });
});

it('a head is looked at once, whatever is in it', () => {
  const blanks = written([LINE, 'host: here', `x-one:${' '.repeat(31 * 1024)}\x80`, LENGTH]);
  const from = performance.now();
  for (let n = 0; n < 20; n++) expect(readPlain(blanks)).toEqual({ kind: 'other' });
  expect(performance.now() - from).toBeLessThan(1_000); // one alone took longer when two parts of the pattern took the same blanks
});

it('a head without an end is for workerd once it is long', () => {
  const long = Buffer.from(`${LINE}\r\nx-one: ${'a'.repeat(32 * 1024)}`);
  expect(readPlain(long)).toEqual({ kind: 'other' });
});

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  MalformedResponseError,
  type ResponseHead,
  ResponseReader,
} from '../../../../agent/attempts/raw-http/response-reader.ts';

const KEEP_MS = 4_000;

interface Read {
  head?: ResponseHead;
  body: string;
  keepMs?: number | undefined;
  ended: boolean;
}

/** Reads a response that arrives in pieces, after which the engine closes the connection if `closes`. */
function read(text: string, cuts: readonly number[] = [], closes = false): Read {
  const got: Read = { body: '', ended: false };
  const reader = new ResponseReader(
    {
      onHead: (head) => Object.assign(got, { head }),
      onData: (bytes) => {
        got.body += bytes.toString('latin1');
      },
      onEnd: (keepMs) => Object.assign(got, { keepMs, ended: true }),
    },
    KEEP_MS,
  );
  reader.expect();
  const bytes = Buffer.from(text, 'latin1');
  let from = 0;
  for (const cut of [...cuts, bytes.length]) {
    reader.push(bytes.subarray(from, cut));
    from = cut;
  }
  if (closes) reader.close();
  return got;
}

const HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n';

describe('a response', () => {
  it.each([
    ['has a length', `${HEAD}content-length: 5\r\n\r\nhello`, 'hello', KEEP_MS],
    ['is empty', `${HEAD}content-length: 0\r\n\r\n`, '', KEEP_MS],
    [
      'has chunks',
      `${HEAD}transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n003;a="b"\r\nllo\r\n0\r\n\r\n`,
      'hello',
      KEEP_MS,
    ],
    ['has trailers', `${HEAD}Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n`, 'hello', KEEP_MS],
    ['has no body', 'HTTP/1.1 204 No Content\r\n\r\n', '', KEEP_MS],
    [
      'follows others',
      `HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 \r\nlink: a\r\n\r\n${HEAD}content-length: 0\r\n\r\n`,
      '',
      KEEP_MS,
    ],
    ['is the last one', `${HEAD}connection: close\r\ncontent-length: 5\r\n\r\nhello`, 'hello', undefined],
    ['is of HTTP/1.0', 'HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello', 'hello', undefined],
    ['is short-lived', `${HEAD}keep-alive: max=9, timeout=3\r\ncontent-length: 1\r\n\r\n!`, '!', 2_000],
    ['is shorter-lived', `${HEAD}keep-alive: timeout=1\r\ncontent-length: 1\r\n\r\n!`, '!', undefined],
  ])('that %s is read, however it is cut', (_, text, body, keepMs) => {
    const whole = read(text);
    expect(whole).toMatchObject({ body, keepMs, ended: true });
    for (let cut = 0; cut <= text.length; cut++) expect(read(text, [cut])).toEqual(whole);
    expect(
      read(
        text,
        [...text].map((_letter, at) => at),
      ),
    ).toEqual(whole);
  });

  it('without a length ends with its connection', () => {
    expect(read(`${HEAD}\r\nhello`)).toMatchObject({ body: 'hello', ended: false });
    expect(read(`${HEAD}\r\nhello`, [], true)).toMatchObject({ body: 'hello', ended: true, keepMs: undefined });
  });

  it('keeps its headers in order, repeated ones too, and their bytes', () => {
    const utf8 = Buffer.from('Zürich\u00a0').toString('latin1'); // `trim` would remove its last byte
    const { head } = read(`HTTP/1.1 429 Too Many\r\nA:1\r\na: \t2 \t\r\nB:\r\nc: ${utf8}\r\ncontent-length: 0\r\n\r\n`);
    expect(head).toEqual({
      status: 429,
      sized: true,
      headers: [
        ['a', '1'],
        ['a', '2'],
        ['b', ''],
        ['c', utf8],
        ['content-length', '0'],
      ],
    });
  });
});

const LONG = 'x'.repeat(16 * 1024);
const chunked = (body: string) => `${HEAD}transfer-encoding: chunked\r\n\r\n${body}`;

describe('refused is', () => {
  it.each([
    ['a length beside chunks', `${HEAD}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n`],
    ['chunks beside a length', `${HEAD}transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n`],
    ['another coding', `${HEAD}transfer-encoding: gzip, chunked\r\n\r\n`],
    ['two codings', `${HEAD}transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n`],
    ['chunks in HTTP/1.0', 'HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n'],
    ['two lengths', `${HEAD}content-length: 5\r\ncontent-length: 5\r\n\r\n`],
    ['a list of lengths', `${HEAD}content-length: 5, 5\r\n\r\n`],
    ['a signed length', `${HEAD}content-length: +5\r\n\r\n`],
    ['a length in hex', `${HEAD}content-length: 0x5\r\n\r\n`],
    ['an empty length', `${HEAD}content-length:\r\n\r\n`],
    ['a length above 2^53', `${HEAD}content-length: 9999999999999999\r\n\r\n`],
    ['HTTP/2', 'HTTP/2.0 200 OK\r\n\r\n'],
    ['HTTP/0.9', 'hello, this is text\r\n\r\n'],
    ['two spaces', 'HTTP/1.1  200 OK\r\n\r\n'],
    ['a status of two digits', 'HTTP/1.1 20 OK\r\n\r\n'],
    ['a status of zeros', 'HTTP/1.1 000 OK\r\n\r\n'],
    ['a folded header', `${HEAD}a: b\r\n c\r\n\r\n`],
    ['a space before the colon', `${HEAD}content-length : 5\r\n\r\n`],
    ['a header without a name', `${HEAD}: 5\r\n\r\n`],
    ['a header without a colon', `${HEAD}content-length\r\n\r\n`],
    ['a NUL', `${HEAD}a: \0\r\n\r\n`],
    ['a bare CR', `${HEAD}a: b\rcontent-length: 5\r\n\r\n`],
    ['a bare LF', `${HEAD}a: b\ncontent-length: 5\r\n\r\n`],
    ['a head that is too large', `${HEAD}a: ${LONG}\r\n\r\n`],
    ['a head without an end', `${HEAD}a: ${LONG}${LONG}`],
    ['100 Continue, which no request asks for', 'HTTP/1.1 100 Continue\r\n\r\n'],
    ['another protocol', 'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n'],
    ['endless interim responses', 'HTTP/1.1 102 Processing\r\n\r\n'.repeat(33)],
    ['a chunk without a size', chunked('\r\nhello\r\n')],
    ['a chunk with a signed size', chunked('+5\r\nhello\r\n')],
    ['a chunk with a size below 0', chunked('-5\r\nhello\r\n')],
    ['a chunk with 0x', chunked('0x5\r\nhello\r\n')],
    ['a chunk with a size above 2^48', chunked('1000000000000\r\n')],
    ['a space before the size', chunked(' 5\r\nhello\r\n')],
    ['a space behind the size', chunked('5 \r\nhello\r\n')],
    ['a chunk line that ends with LF', chunked('5\nhello\r\n')],
    ['a chunk line with a bare CR', chunked('5;a\rb\r\nhello\r\n')],
    ['an endless chunk line', chunked(`5;${LONG}`)],
    ['a chunk that is longer than its size', chunked('4\r\nhello\r\n')],
    ['a chunk whose end is LF', chunked('5\r\nhello\n0\r\n\r\n')],
    ['a malformed trailer', chunked('0\r\na b: c\r\n\r\n')],
    ['endless trailers', chunked(`0\r\n${`a: ${'x'.repeat(999)}\r\n`.repeat(20)}`)],
    ['what follows a response', `${HEAD}content-length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n`],
    ['what follows chunks', chunked('0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n')],
  ])('%s, however it is cut', (_, text) => {
    expect(() => read(text)).toThrow(MalformedResponseError);
    const last = Math.min(text.length, 200);
    for (let cut = 0; cut <= last; cut++) expect(() => read(text, [cut])).toThrow(MalformedResponseError);
  });

  it.each([
    ['in the head', 'HTTP/1.1 200 OK\r\ncontent-'],
    ['in a body with a length', `${HEAD}content-length: 5\r\n\r\nhell`],
    ['in a chunk', chunked('5\r\nhell')],
    ['between chunks', chunked('5\r\nhello\r\n')],
    ['in the trailers', chunked('0\r\na: b\r\n')],
    ['before it begins', ''],
  ])('as incomplete: a connection that ends %s', (_, text) => {
    expect(read(text, [], true).ended).toBe(false);
  });
});

it('any body arrives unchanged, with a length, in chunks, or until the end, however it is cut', () => {
  const sizes = fc.array(fc.nat(40), { maxLength: 6 });
  fc.assert(
    fc.property(
      fc.string({ unit: 'binary-ascii', maxLength: 60 }),
      sizes,
      sizes,
      fc.nat(2),
      (body, parts, gaps, kind) => {
        let [rest, chunks] = [body, ''];
        for (const size of [...parts, body.length]) {
          const part = rest.slice(0, size);
          rest = rest.slice(size);
          if (part !== '') chunks += `${part.length.toString(16)}\r\n${part}\r\n`;
        }
        const framed = [
          `content-length: ${body.length}\r\n\r\n${body}`,
          `transfer-encoding: chunked\r\n\r\n${chunks}0\r\n\r\n`,
        ];
        const text = HEAD + (framed[kind] ?? `\r\n${body}`);
        const cuts: number[] = [];
        for (const gap of gaps) cuts.push(Math.min(text.length, (cuts.at(-1) ?? 0) + gap));
        expect(read(text, cuts, kind === 2)).toMatchObject({ body, ended: true });
      },
    ),
    { numRuns: 300 },
  );
});

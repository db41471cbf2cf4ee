/**
 * Where one request ends and the next begins: RFC 9112. Bytes that two parsers may read in two ways are refused,
 * because after a proxy the difference is another client's request (request smuggling).
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { endAll, eventually } from '../../support/processes.ts';
import { chatBody, openTestCluster, stillServes, type TestCluster } from '../../support/test-cluster.ts';
import { Connection } from './connection.ts';
import { Judge, quiet } from './judge.ts';

let cluster: TestCluster;
let judge: Judge;
beforeAll(async () => {
  [cluster, judge] = await Promise.all([openTestCluster(), Judge.open()]);
});
afterAll(endAll);
afterEach(async () => expect(await stillServes(cluster)).toBe(200));

const BODY = JSON.stringify(chatBody({ tokens: 1 }));
const LENGTH = `content-length: ${BODY.length}\r\n`;
const SMUGGLED = 'GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n';

interface Parts {
  method?: string;
  target?: string;
  version?: string;
  host?: string;
  /** Replaces the length of BODY. */
  framing?: string;
  more?: string;
  body?: string;
}

/** A good request except for `parts`. */
function request(parts: Parts = {}): string {
  const { method = 'POST', target = '/v1/chat/completions', version = 'HTTP/1.1', more = '', body = BODY } = parts;
  const host = parts.host ?? `host: ${new URL(cluster.gateway.url).host}\r\n`;
  const key = `authorization: Bearer ${cluster.key}\r\ncontent-type: application/json\r\n`;
  return `${method} ${target} ${version}\r\n${host}${key}${parts.framing ?? LENGTH}${more}\r\n${body}`;
}

/** BODY in chunks; a test may change the chunk lines. */
function chunked(size = BODY.length.toString(16), end = '\r\n', last = '0\r\n\r\n'): string {
  return `${size}\r\n${BODY}${end}${last}`;
}

const TE = 'transfer-encoding: chunked\r\n';

/**
 * Sends `bytes` and returns the statuses of the responses, and how many requests arrived at the engine. The connection
 * ends, or stays open after `answers` responses and gets no more.
 */
async function send(bytes: string, answers = Number.POSITIVE_INFINITY) {
  const before = cluster.engine.requests.length;
  const connection = await Connection.open(cluster.gateway.url);
  connection.send(bytes);
  const answered = () => connection.ended || connection.answers.length >= answers || undefined;
  await eventually('the responses', 10_000, answered);
  await quiet(connection, 300);
  const asked = cluster.engine.requests.length - before;
  connection.close();
  return { statuses: connection.answers.map(({ status }) => status), asked, connection };
}

/** A parser that errs reads each of these as two requests: the whole connection ends at the first. */
const REFUSED: Record<string, () => string> = {
  'Content-Length and Transfer-Encoding together': () => request({ framing: `${LENGTH}${TE}`, body: chunked() }),
  'Transfer-Encoding and Content-Length together': () => request({ framing: `${TE}${LENGTH}`, body: chunked() }),
  'two Content-Length headers that differ': () => request({ framing: `${LENGTH}content-length: 5\r\n` }),
  'two Content-Length headers that are equal': () => request({ framing: LENGTH + LENGTH }),
  'a list of equal lengths': () => request({ framing: `content-length: ${BODY.length}, ${BODY.length}\r\n` }),
  'a length with a sign': () => request({ framing: `content-length: +${BODY.length}\r\n` }),
  'a negative length': () => request({ framing: 'content-length: -1\r\n' }),
  'a length in hexadecimal': () => request({ framing: `content-length: 0x${BODY.length.toString(16)}\r\n` }),
  'an empty length': () => request({ framing: 'content-length:\r\n' }),
  'a length above 2^64': () => request({ framing: 'content-length: 18446744073709551617\r\n' }),
  'a transfer coding that is not chunked': () => request({ framing: 'transfer-encoding: identity\r\n', body: '' }),
  'chunked that is not the last coding': () =>
    request({ framing: 'transfer-encoding: chunked, identity\r\n', body: chunked() }),
  'chunked twice': () => request({ framing: 'transfer-encoding: chunked, chunked\r\n', body: chunked() }),
  'a transfer coding that nearly is chunked': () =>
    request({ framing: 'transfer-encoding: xchunked\r\n', body: chunked() }),
  'a vertical tab before chunked': () => request({ framing: 'transfer-encoding: \x0bchunked\r\n', body: chunked() }),
  'Transfer-Encoding in HTTP/1.0': () => request({ version: 'HTTP/1.0', framing: TE, body: chunked() }),
  'a space before the colon': () => request({ framing: `content-length : ${BODY.length}\r\n` }),
  'lines that end with LF alone': () => request().replaceAll('\r\n', '\n'),
  'one header line that ends with LF alone': () => request({ more: 'x-one: 1\nx-two: 2\r\n' }),
  'a header line that ends with CR alone': () => request({ more: 'x-one: 1\rx-two: 2\r\n' }),
  'a folded header line': () => request({ more: 'x-folded: one\r\n two\r\n' }),
  'a folded Transfer-Encoding': () => request({ framing: 'transfer-encoding:\r\n chunked\r\n', body: chunked() }),
  'NUL in a header’s value': () => request({ more: 'x-nul: a\0b\r\n' }),
  'NUL in a header’s name': () => request({ more: 'x-n\0ul: a\r\n' }),
  'NUL in the target': () => request({ target: '/v1/chat/\0completions' }),
  'a header line without a colon': () => request({ more: 'nocolon\r\n' }),
  'a header without a name': () => request({ more: ': value\r\n' }),
  'no Host': () => request({ host: '' }),
  'two Host headers': () => request({ host: `host: ${new URL(cluster.gateway.url).host}\r\nhost: other\r\n` }),
  'a chunk size with 0x': () => request({ framing: TE, body: chunked(`0x${BODY.length.toString(16)}`) }),
  'a chunk size with a sign': () => request({ framing: TE, body: chunked(`+${BODY.length.toString(16)}`) }),
  'a chunk size behind a space': () => request({ framing: TE, body: chunked(` ${BODY.length.toString(16)}`) }),
  'a chunk size above 2^64': () =>
    request({ framing: TE, body: chunked(`1000000000000000${BODY.length.toString(16)}`) }),
  'a chunk size line that ends with LF alone': () =>
    request({ framing: TE, body: `${BODY.length.toString(16)}\n${BODY}\r\n0\r\n\r\n` }),
  'a chunk that is longer than it says': () => request({ framing: TE, body: chunked(undefined, 'xx\r\n') }),
  'no line end behind a chunk': () => request({ framing: TE, body: chunked(undefined, '') }),
  'an LF in a chunk extension': () => request({ framing: TE, body: chunked(`${BODY.length.toString(16)};a\nb`) }),
  'a version that is none': () => request({ version: 'HTTP/1.9' }),
  'the version before headers': () => request({ version: 'HTTP/0.9' }),
  'the version after': () => request({ version: 'HTTP/2.0' }),
  'a coding before chunked': () => request({ framing: 'transfer-encoding: gzip, chunked\r\n', body: chunked() }),
  'an empty coding before chunked': () => request({ framing: 'transfer-encoding: ,chunked\r\n', body: chunked() }),
  'a Host that names no host': () => request({ host: 'host: a;b\r\n' }),
  'a Host that is no address': () =>
    request({ method: 'GET', target: '/v1/models', host: 'host: 1207.0.0.1\r\n', framing: '', body: '' }),
  'an expectation that is none': () => request({ more: 'expect: a miracle\r\n' }),
  'a method with a space in front': () => request({ method: ' POST' }),
  'a backslash in the target': () => request({ target: '/v1/chat/completions\\' }),
  'a target that is no path': () => request({ target: '*' }),
  'a target that is half a URL': () => request({ target: 'http://' }),
  'a space in the target': () => request({ target: '/v1/chat/completions x' }),
};

describe('is refused, and what follows on the connection is not read', () => {
  it.each(Object.keys(REFUSED))('%s', async (name) => {
    const bytes = REFUSED[name]?.() ?? '';
    const { statuses, asked, connection } = await send(bytes + SMUGGLED + request());
    expect(asked, 'requests at the engine').toBe(0);
    expect(statuses).toHaveLength(1);
    expect(statuses[0]).toBeGreaterThanOrEqual(400);
    expect(statuses[0]).toBeLessThan(600);
    expect([400, 417, 501, 505]).toContain(statuses[0]);
    expect(connection.text, 'and the client is told in OpenAI’s form').toContain('{"error":{"message":');
    expect(connection.ended, 'the connection is closed').toBe(true);
  });
});

const ACCEPTED: Record<string, () => string> = {
  'a length': () => request(),
  chunks: () => request({ framing: TE, body: chunked() }),
  'a chunk of each byte': () =>
    request({ framing: TE, body: `${[...BODY].map((letter) => `1\r\n${letter}\r\n`).join('')}0\r\n\r\n` }),
  'chunk extensions, which mean nothing here': () =>
    request({ framing: TE, body: chunked(`${BODY.length.toString(16)};name=value;other="quoted"`) }),
  'a chunk size with leading zeros and in capitals': () =>
    request({ framing: TE, body: chunked(`000${BODY.length.toString(16).toUpperCase()}`) }),
  'trailers, which mean nothing here': () =>
    request({ framing: TE, body: chunked(undefined, '\r\n', '0\r\nx-otela-model: other\r\n\r\n') }),
  'header names in capitals': () => request({ framing: `CONTENT-LENGTH: ${BODY.length}\r\n` }),
  'no space behind the colon, and much': () => request({ framing: `content-length:${BODY.length}   \t\r\n` }),
  'empty lines before the request': () => `\r\n\r\n${request()}`,
  'the target as a whole URL': () => request({ target: `${cluster.gateway.url}/v1/chat/completions` }),
};

describe('is one request, then another', () => {
  it.each(Object.keys(ACCEPTED))('%s', async (name) => {
    const bytes = ACCEPTED[name]?.() ?? '';
    const { statuses, asked } = await send(bytes + request(), 2);
    expect(statuses).toEqual([200, 200]);
    expect(asked).toBe(2);
    const [first, second] = cluster.engine.requests.slice(-2);
    expect(first?.bodySha256).toBe(second?.bodySha256);
  });
});

const OFFER = 'connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQBAAAAAAIAAAAA\r\n';

describe('where node:http errs', () => {
  it('HTTP/1.0 needs no Host: those who ask whether a server lives speak it', async () => {
    const { statuses } = await send('GET /healthz HTTP/1.0\r\n\r\n');
    expect(statuses).toEqual([200]);
  });

  it('a request that offers HTTP/2 is answered, and is the last of its connection: of what follows the parser loses a part', async () => {
    const next = request();
    const { statuses, asked, connection } = await send(request({ more: OFFER }) + next.slice(0, 40));
    expect([statuses, asked, connection.ended]).toEqual([[200], 1, true]);
    const pipelined = await send(request({ more: OFFER }) + next);
    expect([pipelined.statuses, pipelined.asked, pipelined.connection.ended]).toEqual([[200], 1, true]);
  });

  it('100 Continue to a request in a pipeline stands before its answer, never inside', async () => {
    const connection = await Connection.open(cluster.gateway.url);
    connection.send(request() + request({ more: 'expect: 100-continue\r\n' }) + request());
    await connection.answer(3);
    const begins = connection.text.split('HTTP/1.1 ').map((answer) => answer.slice(0, 3));
    expect(begins).toEqual(['', '200', '100', '200', '200']);
    connection.close();
  });

  it('and it is answered, though the request behind it is refused before its turn comes', async () => {
    const waits = request({ more: 'expect: 100-continue\r\n' });
    const { statuses, asked, connection } = await send(request() + waits + request({ host: '' }));
    expect([statuses, asked, connection.ended]).toEqual([[200, 200, 400], 2, true]);
  });
});

/**
 * Node's HTTP accepts these: it keeps the first of two Host headers, and leaves the other checks to the code that reads
 * its requests.
 */
const NODE_TAKES = [
  'two Host headers',
  'a coding before chunked',
  'an empty coding before chunked',
  'a Host that names no host',
  'a Host that is no address',
  'an expectation that is none',
  'a backslash in the target',
  'a target that is no path',
  'a target that is half a URL',
];

describe('the second parser agrees', () => {
  it('Node’s own, strict, refuses what is refused here, but for what it is known to take', async () => {
    const taken: string[] = [];
    for (const [name, bytes] of Object.entries(REFUSED)) {
      const { statuses } = await judge.hear(bytes() + SMUGGLED);
      if (statuses.some((status) => status < 400)) taken.push(name);
    }
    expect(taken).toEqual(NODE_TAKES);
  });

  it('and takes what is taken here, as two requests', async () => {
    for (const [name, bytes] of Object.entries(ACCEPTED)) {
      const { statuses } = await judge.hear(bytes() + request());
      expect(statuses, name).toEqual([200, 200]);
    }
  });
});

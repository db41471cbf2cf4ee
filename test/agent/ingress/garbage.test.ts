/**
 * Engines with invalid responses: only the requests to them are affected, and those are retried elsewhere if possible.
 */
import { createServer, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { atEnd, endAll } from '../../support/processes.ts';
import { chatBody } from '../../support/test-cluster.ts';
import { Village, type Villager } from './village.ts';

afterEach(endAll);

const JSON_HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n';
const CHUNKED = 'transfer-encoding: chunked\r\n\r\n';

/** Answers every request with these bytes, then ends the connection. */
async function engineSaying(bytes: string | Buffer): Promise<{ url: string; asked: () => number }> {
  let asked = 0;
  const answer = (socket: Socket) => {
    socket.on('error', () => {});
    socket.once('data', () => {
      asked++;
      socket.end(bytes);
    });
  };
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => new Promise<void>((resolve) => server.close(() => resolve())));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  return { url: `http://127.0.0.1:${port}`, asked: () => asked };
}

async function houses(bytes: string | Buffer) {
  const village = new Village();
  const here = await village.add({ engine: false });
  const engine = await engineSaying(bytes);
  await village.add({ engine: false, engineUrl: engine.url });
  return { village, here, engine };
}

/** Sends requests until one reaches the bad engine; every response is good. */
async function allGood(here: Villager, asked: () => number): Promise<void> {
  for (let n = 0; asked() === 0; n++) {
    expect(n).toBeLessThan(60);
    const response = await here.ask('/chat/completions', chatBody({ tokens: 3 }));
    expect(response.status).toBe(200);
    expect(await response.json()).toMatchObject({ usage: { completion_tokens: 3 } });
  }
}

describe('an engine that says', () => {
  const cases: Record<string, string | Buffer> = {
    nothing: '',
    'random bytes': Buffer.from(Array.from({ length: 4096 }, (_, n) => (n * 7919) % 251)),
    'a greeting of another protocol': 'SSH-2.0-OpenSSH_9.6\r\n',
    'a status that there is not': 'HTTP/1.1 999 Very Good\r\ncontent-length: 0\r\n\r\n',
    'half a head': 'HTTP/1.1 200 OK\r\ncontent-ty',
    'a header without end': `HTTP/1.1 200 OK\r\nx-long: ${'y'.repeat(1024 * 1024)}`,
    'a header with a line break in it': 'HTTP/1.1 200 OK\r\nx-a: b\rc: d\r\ncontent-length: 2\r\n\r\n{}',
    'two lengths': `${JSON_HEAD}content-length: 2\r\ncontent-length: 7\r\n\r\n{}`,
    'a length that is none': `${JSON_HEAD}content-length: many\r\n\r\n{}`,
    'less than its length': `${JSON_HEAD}content-length: 500\r\n\r\n{"choices":[`,
    'less than its length, though it looks whole': `${JSON_HEAD}content-length: 500\r\n\r\n{}`,
    'a chunk size that is none': `${JSON_HEAD}${CHUNKED}zz\r\n{}\r\n0\r\n\r\n`,
    'chunks without the last one': `${JSON_HEAD}${CHUNKED}2\r\n{}\r\n`,
    'half an answer, by chunks that end well': `${JSON_HEAD}${CHUNKED}c\r\n{"choices":[\r\n0\r\n\r\n`,
    'half an answer without any length': `${JSON_HEAD}\r\n{"choices":[{"text":"}]`,
  };
  it.each(Object.entries(cases))('%s: another one answers', async (_what, bytes) => {
    const { village, here, engine } = await houses(bytes);
    await village.add();
    await allGood(here, engine.asked);
  });

  it('half an answer, where there is no other: an error, not half an answer', async () => {
    const { here } = await houses(`${JSON_HEAD}\r\n{"choices":[{"text":"}]`);
    const response = await here.ask('/chat/completions', chatBody());
    expect(response.status).toBe(502);
    expect(await response.json()).toMatchObject({ error: { code: 'upstream_error' } });
  });

  it('no to a request, in half a sentence: the no is the client’s', async () => {
    const { village, here, engine } = await houses(
      'HTTP/1.1 422 Unprocessable\r\ncontent-type: application/json\r\n\r\n{"error":',
    );
    await village.add();
    let refused = 0;
    for (let n = 0; n < 60 && refused === 0; n++) {
      const { status } = await here.ask('/chat/completions', chatBody({ tokens: 3 }));
      if (status === 422) refused++;
      else expect(status).toBe(200);
    }
    expect(refused).toBe(1);
    expect(engine.asked()).toBe(1);
  });
});

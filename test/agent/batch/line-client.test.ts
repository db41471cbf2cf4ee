/** How the client classifies an engine's responses to single lines. */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { LineClient } from '../../../agent/batch/line-client.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';

it.each([
  ['{"choices":[{"finish_reason":"stop"}]}', 200, { kind: 'answered', status: 200 }],
  ['{"choices":[{"finish_reason":"stop"},{"finish_reason":"abort"}]}', 200, { kind: 'failed' }],
  ['{"choices":null}', 200, { kind: 'answered', status: 200 }],
  ['<html>', 200, { kind: 'failed' }],
  ['{"error":{"message":"no such model"}}', 404, { kind: 'answered', status: 404 }],
])('%s with %i', async (body, status, wanted) => {
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(status).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const client = new LineClient({ origin: `http://127.0.0.1:${port}`, pathPrefix: '' }, () => undefined);
  onTestFinished(async () => {
    await client.close();
    server.close();
  });
  const { signal } = new AbortController();
  expect(await client.run('/v1/chat/completions', '{}', 'r', signal)).toMatchObject(wanted);
});

it('sends audio as the form that engines read, and nothing of the line that is no field', async () => {
  const server = createServer((request, response) => {
    const form = new Response(Readable.toWeb(request) as ReadableStream, {
      headers: { 'content-type': request.headers['content-type'] ?? '' },
    }).formData();
    neverRejects(
      form.then(async (fields) => {
        const file = fields.get('file');
        const audio = file instanceof File ? [file.name, file.type, await file.text()] : [];
        const texts = [...fields].filter(([, value]) => typeof value === 'string');
        response.end(JSON.stringify({ text: 'hi', audio, texts, path: request.url }));
      }),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const client = new LineClient({ origin: `http://127.0.0.1:${port}`, pathPrefix: '' }, () => undefined);
  onTestFinished(async () => {
    await client.close();
    server.close();
  });
  const line = {
    model: 'whisper',
    file_url: 'data:audio/x-wav;base64,UklGRg==',
    timestamp_granularities: ['word'],
    metadata: { otela_require: 'gpu=H100' },
    priority: 9,
  };
  const { signal } = new AbortController();
  const answer = await client.run('/v1/audio/transcriptions', JSON.stringify(line), 'r', signal);
  expect(answer).toMatchObject({ kind: 'answered', status: 200 });
  expect(JSON.parse('body' in answer ? answer.body : '')).toEqual({
    text: 'hi',
    audio: ['audio.wav', 'audio/x-wav', 'RIFF'],
    texts: [
      ['model', 'whisper'],
      ['timestamp_granularities[]', 'word'],
    ],
    path: '/v1/audio/transcriptions',
  });
});

describe('a line that takes long', () => {
  afterEach(() => void vi.useRealTimers());

  /** A line at an engine; the test sends the response. `minutes` advances a fake clock. */
  async function lineAt(computedAt: () => number | undefined) {
    const server = createServer((request) => void request.resume());
    server.requestTimeout = 0;
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] });
    // Imported again, so that its waits use this clock.
    vi.resetModules();
    const { LineClient: Client } = await import('../../../agent/batch/line-client.ts');
    const client = new Client({ origin: `http://127.0.0.1:${port}`, pathPrefix: '' }, computedAt);
    onTestFinished(async () => {
      await client.close();
      server.closeAllConnections();
      server.close();
    });
    const asked = once(server, 'request');
    const answer = client.run('/v1/chat/completions', '{}', 'r', new AbortController().signal);
    const [, response] = (await asked) as [unknown, ServerResponse];
    let settled = false;
    neverRejects(
      answer.then(() => {
        settled = true;
      }),
    );
    const minutes = async (count: number) => {
      for (let minute = 0; minute < count && !settled; minute++) await vi.advanceTimersByTimeAsync(60_000);
    };
    return { answer, response, minutes };
  }

  it('is answered after 59 minutes where the engine does not count what it computes', async () => {
    const { answer, response, minutes } = await lineAt(() => undefined);
    await minutes(59);
    response.end('{"choices":[]}');
    expect(await answer).toMatchObject({ kind: 'answered' });
  });

  it('is given up after an hour where the engine does not count', async () => {
    const { answer, minutes } = await lineAt(() => undefined);
    await minutes(61);
    expect(await answer).toMatchObject({ kind: 'failed' });
  });

  it('is waited for through hours in which the engine computes, and for a quarter of an hour in which it does not', async () => {
    let stopsAt = Number.POSITIVE_INFINITY;
    const { answer, minutes } = await lineAt(() => Math.min(stopsAt, performance.now()));
    await minutes(180);
    stopsAt = performance.now();
    const open = Symbol();
    expect(await Promise.race([answer, Promise.resolve(open)])).toBe(open);
    await minutes(16);
    expect(await answer).toMatchObject({ kind: 'failed', why: expect.stringContaining('in time') });
  });
});

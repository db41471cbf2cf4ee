/** Seconds of audio and images: counted, and limited by month. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { wav } from '../shared/openai/audio/audio-files.ts';
import { endAll, eventually } from '../support/processes.ts';
import { chatBody, MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster();
});
afterAll(endAll);

const withKey = z.looseObject({ id: z.string(), key: z.string() });
const makeKey = async (limits: object = {}) =>
  withKey.parse(await cluster.gateway.admin('POST', 'keys', { name: 'k', limits }));
const totals = z.object({ data: z.array(z.looseObject({ audio_seconds: z.number(), images: z.number() })) });

async function usageOf(id: string, requests: number) {
  return await eventually('the usage', 20_000, async () => {
    const { data } = totals.parse(await cluster.gateway.admin('GET', `usage?group_by=key&key=${id}`));
    return data[0]?.requests === requests ? data[0] : undefined;
  });
}

function ask(key: string, path: string, body: object | FormData): Promise<Response> {
  const isForm = body instanceof FormData;
  return fetch(`${cluster.base}/${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, ...(!isForm && { 'content-type': 'application/json' }) },
    body: isForm ? body : JSON.stringify(body),
  });
}

function upload(seconds: number): FormData {
  const form = new FormData();
  form.append('model', MODEL);
  form.append(
    'file',
    new Blob([new Uint8Array(wav(seconds, { rate: 8_000, bits: 8 }))], { type: 'audio/wav' }),
    'a.wav',
  );
  return form;
}

const picture = (n: number, more: object = {}) => ({ model: MODEL, prompt: 'a lake', n, ...more });

it('images and seconds of audio are counted, by the engine’s word or by the audio itself', async () => {
  const { id, key } = await makeKey();
  const texts = [
    await ask(key, 'images/generations', picture(3)),
    await ask(key, 'images/generations', picture(1, { stream: true })),
    await ask(key, 'audio/transcriptions', upload(12)),
    await ask(key, 'audio/speech', { model: MODEL, input: 'hi', voice: 'x' }),
    await ask(key, 'images/generations', picture(99)),
  ];
  expect(texts.map(({ status }) => status)).toEqual([200, 200, 200, 200, 400]);
  await Promise.all(texts.map((response) => response.arrayBuffer()));
  const used = await usageOf(id, 5);
  // The stand-in engine reports 2 s for an upload of this size. Its speech is 48,000 bytes without an audio format: 12 s.
  expect(used).toMatchObject({ images: 4, audio_seconds: 14 });
});

it('a key with used up images or audio is refused these, and nothing else', async () => {
  const { id, key } = await makeKey({ images_per_month: 2, audio_seconds_per_month: 3 });
  const first = [await ask(key, 'images/generations', picture(3)), await ask(key, 'audio/transcriptions', upload(24))];
  expect(first.map(({ status }) => status)).toEqual([200, 200]);
  await Promise.all(first.map((response) => response.arrayBuffer()));
  await usageOf(id, 2);
  for (const [path, body, message] of [
    ['images/generations', picture(1), 'The 2 images of this key for this month are used up.'],
    ['audio/transcriptions', upload(1), 'The 3 seconds of audio of this key for this month are used up.'],
    ['audio/speech', { model: MODEL, input: 'hi', voice: 'x' }, 'The 3 seconds of audio of this key'],
  ] as const) {
    const refused = await ask(key, path, body);
    expect([path, refused.status]).toEqual([path, 429]);
    expect(await refused.json()).toMatchObject({
      error: { code: 'insufficient_quota', message: expect.stringContaining(message) },
    });
  }
  const chat = await ask(key, 'chat/completions', chatBody());
  expect([chat.status, chat.headers.get('x-ratelimit-remaining-images-month')]).toEqual([200, '0']);
  await chat.text();
});

import { env } from 'cloudflare:workers';
import { expect, test, vi } from 'vitest';
import type { TurnRequest, TurnResult } from '../../../shared/queue/wait-queue.ts';
import { patience, promise } from '../../support/patience.ts';

let made = 0;

function place(more: Partial<TurnRequest> = {}): TurnRequest {
  return {
    name: `r${++made}`,
    project: 'p',
    key: 'k',
    scope: 's',
    priority: 'interactive',
    weight: 1,
    busy: [],
    waitMs: 20_000,
    back: false,
    places: 100,
    ...more,
  };
}

async function ask(model: string, asked: TurnRequest, signal?: AbortSignal): Promise<TurnResult> {
  const init = { method: 'POST', body: JSON.stringify(asked), ...(signal === undefined ? {} : { signal }) };
  const response = await env.QUEUE.getByName(model).fetch('https://queue/', init);
  return (await response.json()) as TurnResult;
}

const depth = (model: string) => env.QUEUE.getByName(model).depth();
const waiting = (model: string, count: number) =>
  vi.waitFor(async () => expect((await depth(model)).waiting).toBe(count), { timeout: patience(30_000), interval: 10 });

test('a waiting request may try after a while, and again if that fails', async () => {
  const asked = place();
  expect(await ask('m1', asked)).toEqual({ kind: 'turn' });
  expect(await ask('m1', { ...asked, back: true })).toEqual({ kind: 'turn' });
  expect((await depth('m1')).waiting).toBe(0);
});

test('a request that waited its maximum is told so, and is no longer in the queue', async () => {
  expect(await ask('m2', place({ waitMs: 20 }))).toEqual({ kind: 'late' });
  expect((await depth('m2')).waiting).toBe(0);
});

test('a full queue refuses the project that fills it, says when to come again, and makes room for another project', async () => {
  const first = ask('m3', place({ places: 2, scope: 'a' }));
  await waiting('m3', 1);
  const second = ask('m3', place({ places: 2, scope: 'a' }));
  await waiting('m3', 2);
  const refused = await ask('m3', place({ places: 2, scope: 'a' }));
  expect(refused).toMatchObject({ kind: 'full', retryAfterMs: expect.any(Number) });
  const other = ask('m3', place({ places: 2, scope: 'a', project: 'other' }));
  expect(await second).toMatchObject({ kind: 'full' });
  expect([(await first).kind, (await other).kind]).toEqual(['turn', 'turn']);
});

test('requests that leave free their places', async () => {
  const client = new AbortController();
  const asked = Array.from({ length: 20 }, () => ask('m4', place(), client.signal).catch(() => 'left'));
  await vi.waitFor(async () => expect((await depth('m4')).waiting).toBeGreaterThan(15), {
    timeout: patience(30_000),
    interval: 10,
  });
  client.abort();
  await Promise.all(asked);
  // With only turns, this many would take seconds.
  await vi.waitFor(async () => expect((await depth('m4')).waiting).toBe(0), { timeout: promise(1_000), interval: 10 });
});

test('a request that asks again because its call broke has one place, not two', async () => {
  const again = place();
  const broken = ask('m5', again);
  await waiting('m5', 1);
  const asked = ask('m5', again);
  expect(await broken).toEqual({ kind: 'late' });
  expect(await asked).toEqual({ kind: 'turn' });
  expect((await depth('m5')).waiting).toBe(0);
});

test('many requests that wait for an unknown node may try in growing numbers', async () => {
  const answers = Array.from({ length: 12 }, () => ask('m6', place()));
  for (const answer of answers) expect(await answer).toEqual({ kind: 'turn' });
});

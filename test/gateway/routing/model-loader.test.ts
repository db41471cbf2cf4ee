import { expect, test } from 'vitest';
import type { Env } from '../../../gateway/env.ts';
import { ModelLoader } from '../../../gateway/routing/model-loader.ts';

test('a node is ordered once per two seconds, and again if it has loaded and unloaded the model meanwhile', async () => {
  const sent: string[] = [];
  const env = {
    REGISTRY: { getByName: () => ({ order: async () => ({ kind: 'signed', order: new Uint8Array() }) }) },
    TUNNEL: { getByName: (session: string) => ({ deploy: async () => sent.push(session) }) },
  } as unknown as Env;
  const works: Promise<unknown>[] = [];
  const context = { env, ctx: { waitUntil: (work: Promise<unknown>) => void works.push(work) } };
  const loader = new ModelLoader();
  const ask = (version: number, now: number) => loader.ask('m', { session: 'a', version }, context, now);
  for (const now of [0, 100, 1_999]) ask(1, now);
  ask(3, 1_999);
  ask(3, 4_000);
  await Promise.all(works);
  expect(sent).toHaveLength(3);
  loader.ask('other', { session: 'a', version: 3 }, context, 4_000);
  loader.ask('m', { session: 'b', version: 3 }, context, 4_000);
  await Promise.all(works);
  expect(sent).toEqual(['a', 'a', 'a', 'a', 'b']);
});

import { env } from 'cloudflare:workers';
import { expect, test, vi } from 'vitest';
import { SNAPSHOT_FRESH_MS } from '../../../gateway/registry/snapshot-cache-object.ts';
import { seedToken, TestAgent } from './agent.ts';

/** Requests for snapshots that reached the registry object. */
async function asked(): Promise<number> {
  return (await env.REGISTRY.getByName('registry').ready()).snapshots;
}

test('five hundred isolates at one location are one question to the registry', async () => {
  const relay = env.RELAY;
  if (relay === undefined) throw new Error('wrangler.toml binds no RELAY');
  const before = await asked();
  const answers = await Promise.all(Array.from({ length: 500 }, () => relay.getByName('ZRH').snapshot(null, false)));
  expect(answers.every((answer) => answer?.whole)).toBe(true);
  expect((await asked()) - before).toBe(1);
  const tags = new Set(answers.map((answer) => answer?.tag));
  expect(tags.size).toBe(1);
});

test('isolates of ten locations that ask twice a second for two seconds are four questions of each location', async () => {
  const relay = env.RELAY;
  if (relay === undefined) throw new Error('wrangler.toml binds no RELAY');
  const before = await asked();
  const rounds = 4;
  for (let round = 0; round < rounds; round++) {
    const isolates = Array.from({ length: 500 }, (_, n) => relay.getByName(`L${n % 10}`).snapshot(null, false));
    await Promise.all(isolates);
    await new Promise((resolve) => setTimeout(resolve, SNAPSHOT_FRESH_MS));
  }
  const questions = (await asked()) - before;
  expect(questions).toBeLessThanOrEqual(rounds * 10);
  expect(questions).toBeGreaterThanOrEqual(10);
});

test('what a waiting request lacks is asked for at once, but not more than ten times a second', async () => {
  const relay = env.RELAY?.getByName('GVA');
  if (relay === undefined) throw new Error('wrangler.toml binds no RELAY');
  const agent = await TestAgent.join((await seedToken()).token);
  // The clock is stopped, so that the snapshot is fresh on a slow machine, too.
  const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now());
  const first = await relay.snapshot(null, false);
  await agent.publish();
  expect((await relay.snapshot(first?.tag ?? '', false)) ?? { entries: [] }).toMatchObject({ entries: [] });
  clock.mockRestore();
  const news = await relay.snapshot(first?.tag ?? '', true);
  expect(news?.entries.map(({ session }) => session)).toEqual([agent.session]);
  const before = await asked();
  const startedAt = Date.now();
  for (let round = 0; round < 5; round++) {
    await Promise.all(Array.from({ length: 50 }, () => relay.snapshot(null, true)));
  }
  expect((await asked()) - before).toBeLessThanOrEqual(2 + (Date.now() - startedAt) / 100);
});

/** Objects lose their memory whenever they are idle. An eviction at any step must not change the end of a scenario. */
import * as runtime from 'cloudflare:test';
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { STORIES, type Step, type Story } from './stories.ts';

const HOLD_REQUESTS: ReadonlySet<string> = new Set(['TUNNEL', 'QUEUE']);
const NAMESPACES = [
  'TUNNEL',
  'REGISTRY',
  'RELAY',
  'LIMITS',
  'RESPONSES',
  'USAGE',
  'QUEUE',
  'OBSERVE',
  'BATCH',
  'BATCH_QUEUE',
  'FILE_SWEEP',
  'FACTORY',
] as const;

/** An object that is working is not idle, and cannot be evicted: the test gives up after this time. */
const BUSY_MS = 300;

/** Kinds of objects that were evicted. */
const evicted = new Set<string>();

async function evictAll(step: Step): Promise<void> {
  const all = NAMESPACES.filter((name) => step === 'idle' || !HOLD_REQUESTS.has(name)).map(async (name) => {
    const namespace = env[name] as unknown as DurableObjectNamespace<undefined>;
    for (const id of await runtime.listDurableObjectIds(namespace)) {
      const done = runtime.evictDurableObject(namespace.get(id)).then(
        () => evicted.add(name),
        () => {}, // it does not run, or it is working
      );
      await Promise.race([done, new Promise((resolve) => setTimeout(resolve, BUSY_MS))]);
    }
  });
  await Promise.all(all);
}

/** @returns the scenario's result, and its number of steps */
async function told(story: Story, evictAt?: number): Promise<[unknown, number]> {
  const steps = story();
  for (let at = 0; ; at++) {
    const { done, value } = await steps.next();
    if (done === true) return [value, at];
    if (at === evictAt) await evictAll(value);
  }
}

test.each(Object.entries(STORIES))('%s: the same, whichever step its objects are evicted at', async (_, story) => {
  const [whole, steps] = await told(story);
  for (let at = 0; at < steps; at++) expect([at, (await told(story, at))[0]]).toEqual([at, whole]);
});

test('stories evict objects of each kind that keeps something', () => {
  expect([...evicted]).toEqual(
    expect.arrayContaining(['TUNNEL', 'REGISTRY', 'LIMITS', 'USAGE', 'BATCH', 'FILE_SWEEP']),
  );
});

/** The queue of batches on Cloudflare's runtime: what its calls carry, and which nodes learn of lines first. */
import { env } from 'cloudflare:workers';
import { describe, expect, test } from 'vitest';
import { canOthersTry } from '../../../gateway/batch/leases/node-contexts.ts';
import type { NodeContexts } from '../../../shared/batch/function-context.ts';
import type { QueuedBatch } from '../../../shared/batch/next-batch.ts';

const held = (more: Partial<NodeContexts> = {}): NodeContexts => ({
  ready: [],
  loading: [],
  stored: [],
  broken: [],
  ...more,
});
const batch = (id: string, more: Partial<QueuedBatch> = {}): QueuedBatch => ({
  id,
  project: `project:${id}`,
  expiresMs: Date.now() + 86_400_000,
  waiting: 100,
  leased: 0,
  linesPerS: 0,
  ...more,
});
const soon = () => Date.now() + 60_000;

describe('the queue of functions', () => {
  test('gives a node a batch of an owner that it allows, of the context that it has ready, and none that failed there', async () => {
    const queue = env.BATCH_QUEUE.getByName('function:a');
    await queue.offer(batch('cold', { context: 'x' }), soon());
    await queue.offer(batch('warm', { context: 'y' }), soon());
    const ready = held({ ready: ['y'] });
    expect(await queue.nextFunction([], { owners: undefined, held: ready })).toBe('warm');
    expect(await queue.nextFunction([], { owners: ['project:cold'], held: ready })).toBe('cold');
    expect(await queue.nextFunction(['warm'], { owners: undefined, held: ready })).toBe('cold');
    expect(await queue.nextFunction([], { owners: undefined, held: held({ broken: ['y'] }) })).toBe('cold');
    expect(await queue.nextFunction([], { owners: ['project:other'], held: ready })).toBeNull();
  });

  test('knows on which nodes a context is, as they said when they asked, and of those that run its lines', async () => {
    const queue = env.BATCH_QUEUE.getByName('function:c');
    const ask = (session: string, has: NodeContexts) =>
      queue.nextFunction([], { owners: undefined, held: has }, session);
    expect(await queue.offer(batch('model'), soon())).toBeNull();
    expect(await queue.contextsOf('warm')).toBeNull();
    await ask('warm', held({ ready: ['x', 'y'] }));
    await ask('loads', held({ loading: ['x'] }));
    await ask('stores', held({ stored: ['x'] }));
    await ask('runs', held({ stored: ['x'] }));
    expect(await queue.offer(batch('one', { context: 'x' }), soon(), ['runs', 'in-a-long-call'])).toEqual({
      ready: 3,
      loading: 1,
      stored: 1,
    });
    expect(await queue.contextsOf('warm')).toMatchObject({ ready: ['x', 'y'] });
    await ask('warm', held());
    expect(await queue.contextsOf('warm')).toMatchObject({ ready: [] });
  });

  test('tells the node that has the context before the others, and volatile nodes before stable ones', async () => {
    const queue = env.BATCH_QUEUE.getByName('function:b');
    const heard: string[] = [];
    const waits = [
      ['cold', 'volatile', held()],
      ['stable', 'stable', held({ ready: ['x'] })],
      ['stored', 'volatile', held({ stored: ['x'] })],
      ['ready', 'volatile', held({ ready: ['x'] })],
    ] as const;
    const all = waits.map(([name, tier, has]) => queue.wait(20_000, tier, has).then(() => heard.push(name)));
    await queue.offer(batch('one', { context: 'x' }), soon());
    await Promise.all(all);
    expect(heard).toEqual(['ready', 'stable', 'stored', 'cold']);
  });
});

test('counts the waiting nodes that could run lines of a batch', async () => {
  const queue = env.BATCH_QUEUE.getByName('function:idle');
  const waits = [
    queue.wait(20_000, 'volatile', held()),
    queue.wait(20_000, 'volatile', held({ broken: ['x'] })),
    queue.wait(20_000, 'volatile', held(), ['project:other']),
    queue.wait(20_000, 'volatile', held(), ['project:one']),
    queue.wait(20_000, 'volatile', null),
    queue.wait(20_000, 'volatile', held(), null, ['one']),
  ];
  const idle = (id: string, project = `project:${id}`) => queue.idle(batch(id, { context: 'x', project }));
  expect([await idle('one'), await idle('none'), await idle('two', 'project:one')]).toEqual([2, 2, 3]);
  await queue.offer(batch('one', { context: 'x' }), soon());
  await Promise.all(waits);
  expect(await idle('one')).toBe(0);
});

test.each([
  ['at once if no better node is known', {}, 0, 1_000],
  ['later if another node has its code', { stored: ['new'] }, 300, 5_000],
])('a cold, stable node hears of a function %s', async (name, other, leastMs, mostMs) => {
  const queue = env.BATCH_QUEUE.getByName(`function:${name}`);
  await queue.nextFunction([], { owners: undefined, held: held(other) }, 'other');
  const waits = queue.wait(20_000, 'stable', held());
  const began = Date.now();
  await queue.offer(batch('one', { context: 'new' }), soon());
  await waits;
  expect(Date.now() - began).toBeGreaterThanOrEqual(leastMs);
  expect(Date.now() - began).toBeLessThan(mostMs);
});

describe('the queue of a model', () => {
  test('tells volatile nodes first, and waiting nodes also of a chunk that is late elsewhere', async () => {
    const queue = env.BATCH_QUEUE.getByName('model');
    const heard: string[] = [];
    const all = (['stable', 'volatile'] as const).map((tier) =>
      queue.wait(20_000, tier, null).then(() => heard.push(tier)),
    );
    await queue.offer(batch('late', { waiting: 0, leased: 10, late: true }), soon());
    await Promise.all(all);
    expect(heard).toEqual(['volatile', 'stable']);
    expect(await queue.next([])).toBe('late');
  });
});

test('a failed line goes to another node if several serve its model, or have had its function', () => {
  const engines = { function: undefined, demands: [{ model: 'm' }, { model: 'n' }] };
  const counts = (ready: number, stored = 0) => ({ ready, loading: 0, stored });
  expect(canOthersTry(engines, null, () => 2)).toBe(true);
  expect(canOthersTry(engines, counts(9), (model) => (model === 'm' ? 2 : 1))).toBe(false);
  // The registry lists no node as one that serves a function.
  const functions = { function: {}, demands: [{ model: 'function:file-1' }] };
  expect(canOthersTry(functions, null, () => 0)).toBe(false);
  expect(canOthersTry(functions, counts(1), () => 0)).toBe(false);
  expect(canOthersTry(functions, counts(1, 1), () => 0)).toBe(true);
});

import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from '../support/durable.ts';

const at = (session: string) => ({ session, model: 'm', charged: false });

test('the first node with an id keeps it, so that no other node can take a response over', async () => {
  const object = env.RESPONSES.getByName('first');
  await object.add('resp_1', at('honest'));
  await object.add('resp_1', at('forger'));
  await evictDurableObject(object);
  expect(await object.find('resp_1')).toEqual({ ...at('honest'), charged: false });
  await object.charged('resp_1');
  expect(await object.find('resp_1')).toMatchObject({ charged: true });
  await object.remove('resp_1');
  expect(await object.find('resp_1')).toBeUndefined();
});

test('of more ids than one project may have, the oldest are forgotten', async () => {
  const object = env.RESPONSES.getByName('full');
  await runInDurableObject(object, (_, { storage }) => {
    for (let n = 0; n < 10_000; n++)
      storage.sql.exec('INSERT INTO responses VALUES (?, ?, ?, 0, ?)', `resp_${n}`, 'a', 'm', Date.now() - 20_000 + n);
  });
  await evictDurableObject(object);
  await object.add('resp_10000', at('a'));
  expect(await object.find('resp_0')).toBeUndefined();
  expect(await object.find('resp_10000')).toEqual(at('a'));
  await runInDurableObject(object, (_, { storage }) => {
    expect(storage.sql.exec('SELECT COUNT(*) AS n FROM responses').one().n).toBeLessThanOrEqual(10_000);
    storage.sql.exec('UPDATE responses SET at = 0 WHERE id <> ?', 'resp_10000');
  });
  expect(await object.find('resp_9999')).toBeUndefined();
  await runDurableObjectAlarm(object);
  await runInDurableObject(object, (_, { storage }) =>
    expect(storage.sql.exec('SELECT id FROM responses').toArray()).toEqual([{ id: 'resp_10000' }]),
  );
});

test('responses that were deleted, or were stored before, do not count against a project', async () => {
  const object = env.RESPONSES.getByName('deleted');
  await runInDurableObject(object, (_, { storage }) => {
    for (let n = 0; n < 9_999; n++)
      storage.sql.exec('INSERT INTO responses VALUES (?, ?, ?, 0, ?)', `resp_${n}`, 'a', 'm', Date.now() - 20_000 + n);
  });
  await evictDurableObject(object);
  for (let n = 0; n < 3; n++) {
    await object.add('resp_new', at('a'));
    await object.remove('resp_new');
    await object.remove('resp_new');
    await object.add('resp_1', at('a'));
  }
  await object.add('resp_new', at('a'));
  expect(await object.find('resp_0')).toEqual(at('a'));
  await object.add('resp_newer', at('a'));
  expect(await object.find('resp_0')).toBeUndefined();
});

/** Numbers that a restored data directory must not use again. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { deserialize, serialize } from 'node:v8';
import { expect, it } from 'vitest';
import { advanceCounters } from '../../../gateway/hosts/node/backup/advance-counters.ts';
import { ACCOUNTS_FILE } from '../../../gateway/hosts/node/data/schema-version.ts';
import { temporaryDirectory } from '../../support/processes.ts';

it('a restore skips numbers of records that it knows nothing of', async () => {
  const data = await temporaryDirectory('otela-restored');
  await mkdir(join(data, 'objects', 'TUNNEL'), { recursive: true });
  const node = new DatabaseSync(join(data, 'objects', 'TUNNEL', 'a.sqlite'));
  node.exec('CREATE TABLE pending (position INTEGER PRIMARY KEY AUTOINCREMENT, stream INTEGER NOT NULL)');
  advanceCounters(data);
  const { lastInsertRowid } = node.prepare('INSERT INTO pending (stream) VALUES (1)').run();
  expect(Number(lastInsertRowid)).toBeGreaterThan(2 ** 24);
  node.close();
});

it('what a batch used after a restore is under numbers that no limit has, and totals that the accounts have are not added again', async () => {
  const data = await temporaryDirectory('otela-restored');
  const object = async (kind: string, name: string, script: string) => {
    await mkdir(join(data, 'objects', kind), { recursive: true });
    const made = new DatabaseSync(join(data, 'objects', kind, `${name}.sqlite`));
    made.exec(script);
    return made;
  };
  const batch = await object(
    'BATCH',
    'batch_1',
    'CREATE TABLE bill (position INTEGER PRIMARY KEY AUTOINCREMENT, chunk INTEGER NOT NULL)',
  );
  const hour = (shard: string) =>
    object(
      'USAGE',
      shard,
      `CREATE TABLE totals (name TEXT PRIMARY KEY, total TEXT); INSERT INTO totals VALUES ('a', '{}');
       CREATE TABLE sending (batch INTEGER NOT NULL, total TEXT NOT NULL);
       CREATE TABLE _keys (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID`,
    );
  const hours = [await hour('2026-11-25T09'), await hour('2026-11-25T10')];
  const setBatch = "INSERT INTO _keys VALUES ('batch', ?)";
  for (const one of hours) one.prepare(setBatch).run(serialize(3));
  const accounts = new DatabaseSync(join(data, ACCOUNTS_FILE));
  accounts.exec(
    `CREATE TABLE usage_batches (shard TEXT, batch INTEGER);
     INSERT INTO usage_batches VALUES ('2026-11-25T09', 5), ('2026-11-25T10', 3)`,
  );
  advanceCounters(data);
  const { lastInsertRowid } = batch.prepare('INSERT INTO bill (chunk) VALUES (1)').run();
  expect(Number(lastInsertRowid)).toBeGreaterThan(2 ** 24);
  const left = hours.map((one) => [
    one.prepare('SELECT count(*) AS n FROM totals').get()?.n,
    deserialize(one.prepare("SELECT value FROM _keys WHERE key = 'batch'").get()?.value as Uint8Array),
  ]);
  expect(left).toEqual([
    [0, 5],
    [1, 3],
  ]);
  for (const one of [batch, accounts, ...hours]) one.close();
});

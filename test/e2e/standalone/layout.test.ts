/** Versions of a data directory, and what a restore adds. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect, test } from 'vitest';
import { scheduleAllAlarms } from '../../../gateway/hosts/node/backup/restore-command.ts';
import { layoutOf, migrateLayout } from '../../../gateway/hosts/node/data/directory-version.ts';
import { makeDirectory } from '../../../gateway/hosts/node/data/make-directory.ts';
import { fileName, objectName } from '../../../gateway/hosts/node/object-file-name.ts';
import { temporaryDirectory } from '../../support/processes.ts';

const versionIn = (data: string): unknown => JSON.parse(readFileSync(join(data, 'layout.json'), 'utf8')).version;

test('each version is brought to the next; one that is interrupted goes on where it stood', async () => {
  const data = await temporaryDirectory();
  await migrateLayout(data, []);
  expect(versionIn(data)).toBe(1);
  const ran: string[] = [];
  let fails = true;
  const migrations = [
    async () => void ran.push('1 to 2'),
    async () => {
      ran.push('2 to 3');
      if (fails) throw new Error('power cut');
    },
  ];
  await expect(migrateLayout(data, migrations)).rejects.toThrow('power cut');
  expect([ran, versionIn(data)]).toEqual([['1 to 2', '2 to 3'], 2]);
  fails = false;
  await migrateLayout(data, migrations);
  expect([ran, versionIn(data)]).toEqual([['1 to 2', '2 to 3', '2 to 3'], 3]);
  await migrateLayout(data, migrations);
  expect(ran).toHaveLength(3);
  // A program without these migrations is older.
  await expect(migrateLayout(data, [])).rejects.toThrow(
    /newer otela-gateway: its layout has version 3, but this version knows at most 1/,
  );
  expect(versionIn(data)).toBe(3);
});

test('a new directory has the newest version and runs no migration', async () => {
  const data = await temporaryDirectory();
  await migrateLayout(data, [() => Promise.reject(new Error('there is nothing to migrate'))]);
  expect(versionIn(data)).toBe(2);
});

test('a data directory is made with what is above it, and where none can be made that is an error, not a gateway that never ends', async () => {
  const path = join(await temporaryDirectory(), 'a/b');
  await Promise.all([makeDirectory(path), makeDirectory(path)]);
  await makeDirectory(path);
  await expect(makeDirectory('/proc/otela/data')).rejects.toThrow('ENOENT');
});

/** A directory of version 4: its accounts record changes for followers. */
async function ofVersion4(): Promise<string> {
  const data = await temporaryDirectory();
  mkdirSync(join(data, 'objects/LIMITS'), { recursive: true });
  writeFileSync(join(data, 'layout.json'), '{"layout":"node","version":4}\n');
  for (const name of ['following.sqlite', 'following.sqlite-wal']) writeFileSync(join(data, name), '');
  const create = (file: string, script: string) => {
    const database = new DatabaseSync(join(data, file));
    database.exec(script);
    database.close();
  };
  create(
    'accounts.sqlite',
    `CREATE TABLE api_keys (id TEXT PRIMARY KEY); CREATE TABLE account_changes (key TEXT, seq INTEGER);
     CREATE TABLE follow_feed (name TEXT); CREATE TABLE follow_seen (tbl TEXT);
     CREATE TRIGGER follow_api_keys_insert AFTER INSERT ON api_keys
       BEGIN INSERT INTO account_changes VALUES (NEW.id, 1); END`,
  );
  create('objects/LIMITS/a.sqlite', 'CREATE TABLE months (id TEXT); CREATE TABLE elsewhere (origin TEXT)');
  return data;
}

test('a directory of version 4 keeps its accounts, and nothing of what followers needed', async () => {
  const data = await ofVersion4();
  writeFileSync(join(data, 'role.json'), '{"role":"first","epoch":3}');
  await migrateLayout(data);
  expect(readdirSync(data).sort()).toEqual(['accounts.sqlite', 'layout.json', 'objects']);
  const named = (file: string) => {
    const database = new DatabaseSync(join(data, file));
    if (file === 'accounts.sqlite') database.exec("INSERT INTO api_keys VALUES ('a')");
    const rows = database.prepare("SELECT name FROM sqlite_master WHERE type <> 'index'").all();
    database.close();
    return rows.map(({ name }) => name);
  };
  expect([named('accounts.sqlite'), named('objects/LIMITS/a.sqlite')]).toEqual([['api_keys'], ['months']]);
});

test.each([
  ['of a follower', '{"role":"follower","epoch":0,"follow":"https://gw1.example.org"}', 'of https://gw1.example.org,'],
  ['with a damaged role', '{"role":"fol', 'of another gateway,'],
])('a directory %s is refused and stays as it is', async (_, role, told) => {
  const data = await ofVersion4();
  writeFileSync(join(data, 'role.json'), role);
  const before = readdirSync(data);
  await expect(migrateLayout(data)).rejects.toThrow(told);
  expect([readdirSync(data), versionIn(data)]).toEqual([before, 4]);
});

test('an old objects/ is told apart from a new one', async () => {
  const data = await temporaryDirectory();
  mkdirSync(join(data, 'objects/opentela-RegistryObject'), { recursive: true });
  expect(() => layoutOf(data)).toThrow('0.1 on workerd');
  writeFileSync(join(data, 'layout.json'), '{"layout":"node","version":1}');
  expect(layoutOf(data)).toBe(1);
});

test.each(['2026-11-24T20', 'project:proj_1', '..', 'a/b', 'Ünï%code', '*', ''])(
  '%j has a file that names it',
  (name) => {
    const file = fileName(name);
    expect(file).toMatch(/^[\w%-]+(\.hash)?\.sqlite$/);
    if (name !== '') expect(objectName(file)).toBe(name);
    for (const end of ['-wal', '-shm']) expect(objectName(file + end)).toBeUndefined();
  },
);

test('after a restore every object has an alarm, and those that were set stay as they are', async () => {
  const objects = await temporaryDirectory();
  mkdirSync(join(objects, 'USAGE'));
  for (const name of ['2026-11-24T20', '2026-11-24T21', 'x'.repeat(200)])
    writeFileSync(join(objects, 'USAGE', fileName(name)), '');
  const later = Date.now() + 3_600_000;
  scheduleAllAlarms(objects);
  const database = new DatabaseSync(join(objects, 'alarms.sqlite'));
  database.prepare("UPDATE alarms SET at = ? WHERE name = '2026-11-24T20'").run(later);
  database.exec("DELETE FROM alarms WHERE name = '2026-11-24T21'");
  scheduleAllAlarms(objects);
  const rows = database.prepare('SELECT name, at FROM alarms ORDER BY name').all();
  database.close();
  expect(rows.map(({ name }) => name)).toEqual(['2026-11-24T20', '2026-11-24T21']);
  expect(rows[0]?.at).toBe(later);
  expect(rows[1]?.at).toBeLessThanOrEqual(Date.now());
});

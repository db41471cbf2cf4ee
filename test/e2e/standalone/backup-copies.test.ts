/** What a backup includes and what it leaves out, with data directories that no gateway has open. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { mkdir, readdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, expect, test } from 'vitest';
import { copyDatabases } from '../../../gateway/hosts/node/backup/copy-databases.ts';
import { patience } from '../../support/patience.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

afterEach(endAll);

const cli = (...args: string[]) =>
  spawnSync(NODE, [GATEWAY_MAIN, ...args], { encoding: 'utf8', timeout: patience(30_000) });
const namesIn = (file: string) => spawnSync('tar', ['-tzf', file], { encoding: 'utf8' }).stdout;

/** A data directory with `count` objects, none of which a gateway has open. */
async function withObjects(count: number): Promise<string> {
  const data = await temporaryDirectory();
  for (const part of ['issuer', 'objects/USAGE']) await mkdir(join(data, part), { recursive: true });
  await writeFile(join(data, 'layout.json'), '{"layout":"node","version":1}');
  await writeFile(join(data, 'lock'), '');
  await writeFile(join(data, 'admin.key'), 'a-key\n');
  await writeFile(join(data, 'issuer/root.key'), 'root\n');
  for (let n = 0; n < count; n++) databaseAt(join(data, `objects/USAGE/${n}.sqlite`));
  return data;
}

function databaseAt(file: string): void {
  const database = new DatabaseSync(file);
  database.exec('PRAGMA journal_mode = WAL; CREATE TABLE records (n)');
  database.close();
}

test('files and objects of every class are copied; uploads that are not whole are not', async () => {
  const data = await withObjects(1);
  await mkdir(join(data, 'objects/BATCH_QUEUE'));
  databaseAt(join(data, 'objects/BATCH_QUEUE/queue.sqlite'));
  await mkdir(join(data, 'files'));
  const name = `file-${'a1'.repeat(12)}`;
  await writeFile(join(data, 'files', name), '{"custom_id":"1"}\n');
  await writeFile(join(data, 'files', `${name}.part`), 'half');
  const file = join(await temporaryDirectory(), 'backup.tar.gz');
  expect(cli('backup', '--data', data, '--out', file)).toMatchObject({ status: 0, stderr: '' });
  const elsewhere = join(await temporaryDirectory(), 'data');
  expect(cli('restore', '--data', elsewhere, file)).toMatchObject({ status: 0, stderr: '' });
  expect(await readdir(join(elsewhere, 'files'))).toEqual([name]);
  expect(readFileSync(join(elsewhere, 'files', name), 'utf8')).toBe('{"custom_id":"1"}\n');
  expect(await readdir(join(elsewhere, 'objects/BATCH_QUEUE'))).toEqual(['queue.sqlite']);
});

test('with few descriptors every database is copied nevertheless', async () => {
  const data = await withObjects(150);
  const file = join(await temporaryDirectory(), 'backup.tar.gz');
  const command = [GATEWAY_MAIN, 'backup', '--data', data, '--out', file];
  const { status, stderr } = spawnSync('sh', ['-c', 'ulimit -n 80 && exec "$@"', 'sh', NODE, ...command], {
    encoding: 'utf8',
  });
  expect([status, stderr]).toEqual([0, '']);
  expect(namesIn(file).match(/\.sqlite$/gm)).toHaveLength(150);
});

test('a database that is gone is left out; one that is there and cannot be opened is an error', async () => {
  const [data, to] = [await withObjects(1), await temporaryDirectory()];
  const [kept, gone, shut] = ['0', 'gone', 'shut'].map((name) => `objects/USAGE/${name}.sqlite`);
  expect(await copyDatabases(data, [gone ?? '', kept ?? ''], to, 10)).toEqual([kept]);
  // SQLite has the same error code for a missing file, a lack of free descriptors, a missing permission and a circular
  // link.
  await symlink('shut.sqlite', join(data, shut ?? ''));
  await expect(copyDatabases(data, [shut ?? ''], to, 10)).rejects.toThrow(/shut\.sqlite: unable to open/);
});

test('what an editor left among the keys is not taken; a database at a strange place is refused by name', async () => {
  const data = await withObjects(1);
  await writeFile(join(data, 'issuer/root.key~'), 'old\n');
  const file = join(await temporaryDirectory(), 'backup.tar.gz');
  expect(cli('backup', '--data', data, '--out', file)).toMatchObject({ status: 0, stderr: '' });
  expect(namesIn(file)).not.toContain('~');
  const elsewhere = join(await temporaryDirectory(), 'data');
  expect(cli('restore', '--data', elsewhere, file).status).toBe(0);
  expect((await readdir(join(elsewhere, 'issuer'))).sort()).toEqual(['root.key']);
  await mkdir(join(data, 'objects/USAGE/old'));
  databaseAt(join(data, 'objects/USAGE/old/0.sqlite'));
  const out = join(await temporaryDirectory(), 'backup.tar.gz');
  const { status, stderr } = cli('backup', '--data', data, '--out', out);
  expect([status, stderr]).toEqual([1, expect.stringContaining('old/0.sqlite')]);
  expect(await readdir(join(out, '..'))).toEqual([]);
});

test('a signal leaves no copy of the keys behind; what kill -9 left is removed by the next backup, what runs is not', async () => {
  const [data, stuck] = [await withObjects(1), await withObjects(1)];
  // No process writes into the FIFO, so the reader of the keys waits forever, after the databases are copied.
  spawnSync('mkfifo', [join(stuck, 'issuer/revoked')]);
  const beside = await temporaryDirectory();
  const start = async () => {
    const before = await readdir(beside);
    const command = [GATEWAY_MAIN, 'backup', '--data', stuck, '--out', join(beside, 'never.tar.gz')];
    const child = spawn(NODE, command, { stdio: 'ignore' });
    atEnd(() => void child.kill('SIGKILL'));
    const name = await eventually('copies', 10_000, async () => {
      const made = (await readdir(beside)).find((one) => !before.includes(one));
      return made !== undefined && existsSync(join(beside, made, 'data/objects')) ? made : undefined;
    });
    const end = async (signal: NodeJS.Signals) => {
      child.kill(signal);
      expect((await once(child, 'exit'))[1]).toBe(signal);
    };
    return { name, end };
  };
  const told = await start();
  expect(statSync(join(beside, told.name)).mode & 0o777).toBe(0o700);
  await told.end('SIGTERM');
  expect(await readdir(beside)).toEqual([]);

  const killed = await start();
  await killed.end('SIGKILL');
  expect(await readdir(beside)).toEqual([killed.name]);
  const running = await start();
  expect(await readdir(beside)).toEqual([running.name]);
  const { status, stderr } = cli('backup', '--data', data, '--out', join(beside, 'other.tar.gz'));
  expect([status, stderr]).toEqual([0, '']);
  expect((await readdir(beside)).sort()).toEqual([running.name, 'other.tar.gz'].sort());
  await running.end('SIGKILL');
  const next = cli('backup', '--data', data, '--out', join(beside, 'next.tar.gz'));
  expect([next.status, next.stderr]).toEqual([0, expect.stringContaining(`removed ${join(beside, running.name)}`)]);
  expect((await readdir(beside)).sort()).toEqual(['next.tar.gz', 'other.tar.gz']);
});

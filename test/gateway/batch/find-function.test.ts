/** The function that a batch's lines name, and the files that its nodes may read. */
import { env as worker } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { database } from '../../../gateway/accounts/database.ts';
import { functionOf } from '../../../gateway/batch/find-function.ts';
import type { Env } from '../../../gateway/env.ts';
import type { FileStore } from '../../../gateway/files/file-store.ts';
import { files } from '../../../gateway/files/file-tables.ts';

const NOW = 1_800_000_000_000;
const ENDPOINT = '/v1/otela/functions';

/** A gateway with this text in all files. */
const gatewayWith = (text: string): Env => {
  const store = {
    read: async () =>
      (async function* () {
        yield new TextEncoder().encode(text);
      })(),
  } as unknown as FileStore;
  return { ...worker, FILES: store } as unknown as Env;
};

async function addFile(id: string, owner: string): Promise<void> {
  const row = { id, owner, createdBy: 'k', purpose: 'user_data', filename: id, bytes: 5, createdAt: NOW };
  await database(worker as Env)
    .insert(files)
    .values(row);
}

test('nodes may read the pieces of the environment that a bundle names, if they belong to its owner', async () => {
  const owner = 'project:lab';
  for (const id of ['file-function', 'file-piece', 'file-table']) await addFile(id, owner);
  await addFile('file-foreign', 'project:other');
  const found = (pieces: unknown, named: string[] = []) => {
    const bundle = { opentela_function: 1, options: {}, environment_files: pieces };
    return functionOf(
      gatewayWith(JSON.stringify(bundle)),
      { owner, endpoint: ENDPOINT },
      'function:file-function',
      named,
    );
  };
  expect(await found(['file-piece'], ['file-table'])).toMatchObject({ files: ['file-table', 'file-piece'] });
  expect(await found(['file-piece'], ['file-piece'])).toMatchObject({ files: ['file-piece'] });
  for (const foreign of ['file-foreign', 'file-missing'])
    expect(await found(['file-piece', foreign])).toMatchObject({
      code: 'model_not_found',
      message: expect.stringContaining(`There is no file ${foreign}`),
    });
  // Not a list of ids, or too many: the function reads no file, and nodes refuse it.
  for (const odd of [undefined, 'file-piece', ['../etc/passwd'], [1], Array.from({ length: 257 }, () => 'file-piece')])
    expect(await found(odd)).not.toHaveProperty('files');
});

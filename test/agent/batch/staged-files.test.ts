/** Files of a function's calls on its node. */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { type CopyFile, StagedFiles } from '../../../agent/batch/functions/staged-files.ts';
import { temporaryDirectory } from '../../support/processes.ts';

async function staged(mostBytes: number) {
  const files = new StagedFiles(await temporaryDirectory('staged'), mostBytes);
  const copied: string[] = [];
  const copy: CopyFile = async (id, path) => {
    copied.push(id);
    writeFileSync(path, id.repeat(id === 'file-large' ? 100 : 1));
    if (id === 'file-broken') throw new Error('the connection broke');
  };
  return { files, copied, stage: (...ids: string[]) => files.stage(ids, copy) };
}

it('are copied once for several calls, and deleted with the process', async () => {
  const { files, copied, stage } = await staged(1_000);
  await stage('file-a', 'file-b');
  await stage('file-b');
  expect(copied).toEqual(['file-a', 'file-b']);
  expect(readFileSync(join(files.directory, 'file-a'), 'utf8')).toBe('file-a');
  expect(files.remove()).toBeUndefined();
  expect(existsSync(files.directory)).toBe(false);
});

it('leave nothing of a broken copy, which is tried again', async () => {
  const { files, copied, stage } = await staged(1_000);
  await expect(stage('file-broken')).rejects.toThrow('the connection broke');
  expect(readdirSync(files.directory)).toEqual([]);
  await expect(stage('file-broken')).rejects.toThrow('the connection broke');
  expect(copied).toHaveLength(2);
});

it('are bounded: those that no call read for the longest time go first, and one call may not need more', async () => {
  const { files, copied, stage } = await staged(18);
  await stage('file-a');
  await stage('file-b');
  await stage('file-a');
  await stage('file-c', 'file-d');
  expect(readdirSync(files.directory).sort()).toEqual(['file-a', 'file-c', 'file-d']);
  await stage('file-b');
  expect(copied.filter((id) => id === 'file-b')).toHaveLength(2);
  await expect(stage('file-large')).rejects.toThrow('the files of one call have');
});

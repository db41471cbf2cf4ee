/** Programs that cannot be started, in the ways that Node reports with an exception. */
import { closeSync, copyFileSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { expect, it, onTestFinished } from 'vitest';
import { EngineProcess } from '../../../agent/engine/engine-process.ts';
import { toolRunner } from '../../../agent/host/run-tool.ts';
import { spawnSafely } from '../../../agent/host/spawn-safely.ts';
import { NODE, scratch } from '../support/harness.ts';

/** A program that is being replaced: the kernel does not run a file that is open for writing (ETXTBSY). */
function busyProgram(): string {
  const path = join(scratch(), 'squeue');
  copyFileSync(NODE, path);
  const held = openSync(path, 'r+');
  onTestFinished(() => closeSync(held));
  return path;
}

it('a tool that is being replaced is an answer, not an exception', async () => {
  const answer = await toolRunner(process.env)(busyProgram(), []);
  expect(answer).toMatchObject({ ok: false, absent: false, reason: expect.stringContaining('ETXTBSY') });
});

it('a child that cannot be started says so by its error', async () => {
  const child = spawnSafely(busyProgram(), [], { stdio: 'ignore' });
  const error = await new Promise((resolve) => child.once('error', resolve));
  expect(error).toMatchObject({ code: 'ETXTBSY' });
  expect(child.pid).toBeUndefined();
  child.unref();
});

it('an engine whose command is longer than the kernel takes has ended, and its owner lives', async () => {
  const sink = new Writable({ write: (_chunk, _encoding, done) => done() });
  const options = { env: { PATH: process.env.PATH }, stdout: sink, stderr: sink, log: () => {} };
  const child = new EngineProcess({ ...options, command: ['true', 'x'.repeat(4 * 2 ** 20)] });
  expect(await child.exited).toMatchObject({ kind: 'error', message: expect.stringContaining('E2BIG') });
  await child.stop(0, Promise.resolve());
});

it('engines that come and go leave nothing at the output of their agent', async () => {
  const sink = new Writable({ write: (_chunk, _encoding, done) => done() });
  const options = { env: { PATH: process.env.PATH }, stdout: sink, stderr: sink, log: () => {} };
  for (let n = 0; n < 3; n++) {
    const child = new EngineProcess({ ...options, command: ['true'] });
    await child.exited;
    await child.stop(0, Promise.resolve());
  }
  await expect.poll(() => sink.listenerCount('error')).toBe(0);
});

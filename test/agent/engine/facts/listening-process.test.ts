import { mkdirSync, realpathSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { listeningEngine } from '../../../../agent/engine/facts/listening-process.ts';
import { Managed } from '../../../support/processes.ts';
import { NODE } from '../../../support/where.ts';
import { scratch } from '../../support/harness.ts';

const LISTEN =
  "require('node:net').createServer().listen(0, '127.0.0.1', function () { console.log('at ' + this.address().port + '.') })";

/** Starts a process with the command line of `vllm serve`. Returns its port. */
async function startEngine(folder: string, script: string): Promise<number> {
  const path = join(folder, 'vllm');
  writeFileSync(path, script);
  const env = { HF_HOME: '/models', HF_TOKEN: 'secret' };
  const engine = new Managed([NODE, path, 'serve', 'org/m', '--quantization', 'fp8'], { cwd: folder, env });
  onTestFinished(() => engine.stop());
  return Number((await engine.line(/at (\d+)\./, 10_000))[1]);
}

it.each([
  ['itself', LISTEN],
  [
    'by a child, as vLLM’s API servers do',
    `require('node:child_process').spawn(process.execPath, ['-e', ${JSON.stringify(LISTEN)}], { stdio: 'inherit' })`,
  ],
])('finds the command line, the folder and the cache of the engine that listens at a port %s', async (_how, script) => {
  const folder = realpathSync(scratch());
  const found = await listeningEngine(await startEngine(folder, script));
  expect(found?.command.slice(1)).toEqual([join(folder, 'vllm'), 'serve', 'org/m', '--quantization', 'fp8']);
  expect(found?.directory).toBe(folder);
  expect(found?.env).toMatchObject({ HF_HOME: '/models' });
  expect(JSON.stringify(found)).not.toContain('secret');
});

it('finds nothing where no process of this user listens, or it is no engine', async () => {
  const server = new Managed([NODE, '-e', LISTEN]);
  onTestFinished(() => server.stop());
  expect(await listeningEngine(Number((await server.line(/at (\d+)\./, 10_000))[1]))).toBeUndefined();
  expect(await listeningEngine(1)).toBeUndefined();
});

it('survives a /proc with anything in it', async () => {
  const proc = scratch();
  mkdirSync(join(proc, 'net'));
  mkdirSync(join(proc, '7', 'fd'), { recursive: true });
  writeFileSync(join(proc, 'net', 'tcp'), `sl\n  0: 0100007F:1F40 00000000:0000 0A 0 0 0 0 0 77\n${'x '.repeat(1e5)}`);
  expect(await listeningEngine(8000, proc)).toBeUndefined();
  expect(await listeningEngine(8000, join(proc, 'missing'))).toBeUndefined();
});

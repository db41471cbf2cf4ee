/** What a command of a batch system that ends badly is reported as. */
import { ChildProcess } from 'node:child_process';
import { expect, it, vi } from 'vitest';
import { commandRunner } from '../../node/command-runner.ts';

const MANY_BYTES = 'head -c 9000000 /dev/zero';

it('names the signal that ended a command, whose effect is unknown', async () => {
  expect(await commandRunner()('sh', ['-c', 'kill -KILL $$'])).toEqual({
    kind: 'killed',
    errors: 'sh was ended by SIGKILL',
  });
});

it('reports too much output as such, also while another process holds the pipes', async () => {
  const run = commandRunner({}, 60_000);
  for (const script of [MANY_BYTES, `sleep 20 & ${MANY_BYTES}`, `${MANY_BYTES} >&2`])
    expect(await run('sh', ['-c', script])).toEqual({
      kind: 'killed',
      errors: 'sh printed more than 8388608 bytes',
    });
});

it('reports a command that does not answer in time', async () => {
  expect(await commandRunner({}, 50)('sh', ['-c', 'sleep 60'])).toEqual({
    kind: 'killed',
    errors: 'sh did not answer within 0.1 s',
  });
});

it('reports a command that cannot be started, also if Node throws', async () => {
  expect(await commandRunner()('no-such-command', [])).toMatchObject({ kind: 'missing' });
  // One argument of Linux has at most 128 KiB.
  expect(await commandRunner()('sh', ['-c', ':'.padEnd(200_000, ' ')])).toMatchObject({ kind: 'missing' });
});

it('reads a character that arrives in two pieces', async () => {
  const script = "printf '\\303'; sleep 0.2; printf '\\251'";
  expect(await commandRunner()('sh', ['-c', script])).toMatchObject({ kind: 'done', out: 'é' });
});

it('reports an unknown effect of a command that it may not kill, such as a setuid program', async () => {
  const kill = vi.spyOn(ChildProcess.prototype, 'kill').mockImplementation(function (this: ChildProcess) {
    return this.emit('error', new Error('kill EPERM'));
  });
  expect(await commandRunner({}, 50)('sh', ['-c', 'sleep 1'])).toMatchObject({ kind: 'killed' });
  kill.mockRestore();
});

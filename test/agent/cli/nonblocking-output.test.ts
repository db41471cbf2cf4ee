/** The agent on a terminal that accepts no more output. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { NODE, ROOT } from '../../support/where.ts';
import { scratch } from '../support/harness.ts';

/**
 * Runs a command on its own terminal. If `reads` is 0, the terminal is read only after the command has ended, or after
 * ten seconds.
 */
const ON_TERMINAL = `
import os, pty, select, signal, sys, time
reads, command = sys.argv[1] == '1', sys.argv[2:]
pid, master = pty.fork()
if pid == 0:
    os.execv(command[0], command)
until = time.monotonic() + 10
ended = False
while not ended and time.monotonic() < until:
    if reads and select.select([master], [], [], 0.01)[0]:
        try: sys.stdout.buffer.write(os.read(master, 65536))
        except OSError: pass
    ended = os.waitpid(pid, os.WNOHANG)[0] == pid
    if not reads: time.sleep(0.01)
if not ended:
    os.kill(pid, signal.SIGKILL)
print('ended' if ended else 'stands still')
`;

/** Writes 1 MiB, as an engine does, and continues its work. */
const PROGRAM = `
import { writeFileSync } from 'node:fs';
const { neverBlocking } = await import(process.argv[1]);
const out = neverBlocking(process.stdout);
const line = 'x'.repeat(1_023) + '\\n';
for (let n = 0; n < 1_024; n++) out.write(line);
setTimeout(() => {
  writeFileSync(process.argv[2], 'works');
  process.exit(0);
}, 50);
`;

function runOn(reads: boolean): { said: string; work: string } {
  const work = join(scratch(), 'work');
  writeFileSync(work, '');
  const module = join(ROOT, 'agent/cli/nonblocking-output.ts');
  const command = [NODE, '--input-type=module', '-e', PROGRAM, module, work];
  const said = execFileSync('python3', ['-c', ON_TERMINAL, reads ? '1' : '0', ...command], {
    encoding: 'utf8',
    maxBuffer: 16 * 1024 * 1024,
  });
  return { said, work: readFileSync(work, 'utf8') };
}

it('goes on where the terminal takes nothing more, as after Ctrl-S', () => {
  const { said, work } = runOn(false);
  expect([said.trim(), work]).toEqual(['ended', 'works']);
});

it('shows what is said where the terminal is read', () => {
  const { said, work } = runOn(true);
  expect(work).toBe('works');
  expect(said).toContain(`${'x'.repeat(1_023)}\r\n`);
});

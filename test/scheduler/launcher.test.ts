import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { command, slurmLauncher } from '../../scheduler/controller/launcher.ts';

const folder = mkdtempSync(join(tmpdir(), 'otela-plan-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('Slurm by its commands', () => {
  const path = process.env.PATH;
  afterEach(() => {
    process.env.PATH = path;
  });

  function commands(scripts: Record<string, string>): void {
    const made = mkdtempSync(join(folder, 'bin-'));
    for (const [name, text] of Object.entries(scripts))
      writeFileSync(join(made, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
    process.env.PATH = `${made}:${path}`;
  }

  it('reads the id that sbatch prints and hands the script over', async () => {
    const got = join(folder, 'script');
    commands({ sbatch: `cat > ${got}; echo "4711;cluster"` });
    expect(await slurmLauncher().start('#!/bin/sh\nhello\n', 'otela-x')).toBe('4711');
    expect(readFileSync(got, 'utf8')).toBe('#!/bin/sh\nhello\n');
  });

  it('knows waiting, running and gone', async () => {
    commands({ squeue: 'printf "1 PENDING\\n2 RUNNING\\n3 COMPLETED\\n9 RUNNING\\n"' });
    expect(Object.fromEntries(await slurmLauncher().states(['1', '2', '3', '4']))).toEqual({
      1: 'waiting',
      2: 'running',
      3: 'gone',
      4: 'gone',
    });
  });

  it('a command that fails or is not there is an error with its words', async () => {
    commands({ squeue: 'echo "slurm_load_jobs error" >&2; exit 1' });
    await expect(slurmLauncher().states(['1'])).rejects.toThrow(/slurm_load_jobs error/);
    await expect(command('no-such-command-here', [])).rejects.toThrow(/ENOENT/);
    commands({ sbatch: 'echo Submitted' });
    await expect(slurmLauncher().start('#!/bin/sh\n', 'x')).rejects.toThrow(/no job id/);
  });
});

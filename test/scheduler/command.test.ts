import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { runSlurmCommand } from '../../scheduler/live/run-slurm-command.ts';

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

  it('a command that fails or is not there is an error with its words', async () => {
    commands({ squeue: 'echo "slurm_load_jobs error" >&2; exit 1' });
    await expect(runSlurmCommand('squeue', ['--me'])).rejects.toThrow(/slurm_load_jobs error/);
    await expect(runSlurmCommand('no-such-command-here', [])).rejects.toThrow(/ENOENT/);
  });
});

/** What the numbers were taken on; without it they say nothing. */
import { readFileSync } from 'node:fs';
import { arch, cpus, loadavg, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { ROOT } from '../test/support/where.ts';

export interface Machine {
  cpu: string;
  cores: number;
  memory_mib: number;
  kernel: string;
  node: string;
  workerd: string;
  /** Of the last minute, before the run: much above 0 means that others were at work. */
  load: number;
  date: string;
}

const packageSchema = z.object({ version: z.string() });

export function machine(): Machine {
  const workerd: unknown = JSON.parse(readFileSync(join(ROOT, 'node_modules/workerd/package.json'), 'utf8'));
  return {
    cpu: `${cpus()[0]?.model ?? 'unknown'} (${arch()})`,
    cores: cpus().length,
    memory_mib: Math.round(totalmem() / 1024 / 1024),
    kernel: release(),
    node: process.version,
    workerd: packageSchema.parse(workerd).version,
    load: loadavg()[0] ?? 0,
    date: new Date().toISOString(),
  };
}

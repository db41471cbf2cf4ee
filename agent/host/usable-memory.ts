/**
 * Memory that this job may use, in MiB: the smallest of the machine's memory, its control group's limit, and Slurm's
 * limit.
 */
import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { dirname, join } from 'node:path';

const MIB_BYTES = 1024 * 1024;

interface MemorySources {
  readText(path: string): string | undefined;
  totalBytes: number;
}

const HOST: MemorySources = {
  readText(path) {
    try {
      return readFileSync(path, 'utf8');
    } catch {
      return undefined;
    }
  },
  totalBytes: totalmem(),
};

export function usableMemoryMib(
  env: Readonly<Record<string, string | undefined>>,
  sources: MemorySources = HOST,
): number {
  const limits = [sources.totalBytes, ...groupLimits(sources)];
  const perNode = env.SLURM_MEM_PER_NODE;
  // `--mem=0` means all memory of the machine.
  if (perNode !== undefined && /^[1-9]\d*$/.test(perNode)) limits.push(Number(perNode) * MIB_BYTES);
  return Math.floor(Math.min(...limits) / MIB_BYTES);
}

/**
 * Slurm sets the limit on the group of the job and of the step, but the task runs in an unlimited group below them. So
 * all levels are read.
 */
function groupLimits({ readText }: MemorySources): number[] {
  const limits: number[] = [];
  for (const line of (readText('/proc/self/cgroup') ?? '').split('\n')) {
    const [, controllers, path] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
    if (path === undefined) continue;
    const unified = controllers === '';
    if (!unified && !controllers?.split(',').includes('memory')) continue;
    const root = unified ? '/sys/fs/cgroup' : '/sys/fs/cgroup/memory';
    const file = unified ? 'memory.max' : 'memory.limit_in_bytes';
    for (let level = path; ; level = dirname(level)) {
      const text = readText(join(root, level, file))?.trim();
      // If there is no limit, version 2 has `max`. Version 1 has a value near 2^63, which is larger than any machine's
      // memory.
      if (text !== undefined && /^\d+$/.test(text) && Number(text) > 0) limits.push(Number(text));
      if (level === '/') break;
    }
  }
  return limits;
}

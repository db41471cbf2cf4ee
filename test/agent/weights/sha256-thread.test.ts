import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { getPriority } from 'node:os';
import { afterEach, expect, it } from 'vitest';
import { Sha256Thread } from '../../../agent/weights/sha256-thread.ts';

let hasher: Sha256Thread | undefined;
afterEach(() => hasher?.close());

/** `nice` is the 19th field of proc_pid_stat(5). */
const niceOf = (task: string) =>
  Number(
    readFileSync(`/proc/self/task/${task}/stat`, 'utf8')
      .replace(/^.*\) /, '')
      .split(' ')[16],
  );

it.runIf(process.platform === 'linux')(
  'the thread that computes digests, and no other, gives way to tokens',
  async () => {
    const before = readdirSync('/proc/self/task');
    hasher = new Sha256Thread();
    const memory = new SharedArrayBuffer(3);
    expect(await hasher.piece(memory, 3, 0)).toBe(createHash('sha256').update(new Uint8Array(3)).digest('hex'));
    const niceOfThem = readdirSync('/proc/self/task').map((task) => ({ task, nice: niceOf(task) }));
    const lower = Math.min(getPriority() + 10, 19);
    expect(niceOfThem.filter(({ nice }) => nice === lower)).toHaveLength(1);
    for (const { task, nice } of niceOfThem) if (before.includes(task)) expect(nice).toBeLessThan(lower);
  },
);

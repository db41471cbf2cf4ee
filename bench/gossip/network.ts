/**
 * A separate network namespace for a benchmark: every byte on its loopback is ours, including headers and
 * acknowledgments.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cannotRun } from '../../test/support/abilities.ts';

const MARK = 'OTELA_BENCH_NETWORK';

/**
 * Runs this program again in a new namespace. Returns its exit code, or undefined if it already runs there or cannot.
 */
export function inOwnNetwork(argv: readonly string[]): number | undefined {
  if (process.env[MARK] !== undefined || cannotRun('netns') !== undefined) return undefined;
  const name = `otela-bench-${process.pid}`;
  const ip = (...args: string[]) => spawnSync('ip', args, { stdio: ['ignore', 'ignore', 'inherit'] }).status === 0;
  if (!ip('netns', 'add', name)) return undefined;
  try {
    ip('-n', name, 'link', 'set', 'lo', 'up');
    const args = ['netns', 'exec', name, process.execPath, ...argv];
    return spawnSync('ip', args, { stdio: 'inherit', env: { ...process.env, [MARK]: name } }).status ?? 1;
  } finally {
    ip('netns', 'del', name);
  }
}

export interface Traffic {
  bytes: number;
  packets: number;
}

/** Bytes sent on loopback, with every header except Ethernet's 14 bytes; undefined if others use it, too. */
export function traffic(): Traffic | undefined {
  if (process.env[MARK] === undefined) return undefined;
  const line = readFileSync('/proc/net/dev', 'utf8')
    .split('\n')
    .find((text) => text.trim().startsWith('lo:'));
  const numbers = (line ?? '').split(':')[1]?.trim().split(/\s+/).map(Number) ?? [];
  const [bytes = 0, packets = 0] = numbers.slice(8);
  return { bytes: bytes - 14 * packets, packets };
}

export const noTraffic = 'bytes need a network namespace of their own: root, ip, nft';

/** Faults in a process under test: what it needs for `fault-injector.ts`, and what was injected. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './where.ts';

/** For the environment of the process. SIGWINCH begins it. Each fault becomes a line of `file`. */
export function faultEnvironment(seed: number, file: string): Record<string, string> {
  const preload = join(ROOT, 'test/support/fault-injector.ts');
  return { NODE_OPTIONS: `--import=${preload}`, FAULT_SEED: String(seed), FAULT_LOG: file };
}

/** `KIND PLACE CODE` each. */
export function injected(file: string): string[] {
  return readFileSync(file, 'utf8').split('\n').filter(Boolean);
}

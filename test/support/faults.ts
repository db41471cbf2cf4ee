/** Faults in a process under test: the environment for `fault-injector.ts`, and the list of injected faults. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './where.ts';

/** The environment of the process. SIGWINCH begins the faults. Each fault becomes a line of `file`. */
export function faultEnvironment(seed: number, file: string): Record<string, string> {
  const preload = join(ROOT, 'test/support/fault-injector.ts');
  return { NODE_OPTIONS: `--import=${preload}`, FAULT_SEED: String(seed), FAULT_LOG: file };
}

/** Lines of the form `KIND PLACE CODE`. */
export function injected(file: string): string[] {
  return readFileSync(file, 'utf8').split('\n').filter(Boolean);
}

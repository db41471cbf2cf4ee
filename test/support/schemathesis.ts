/** Schemathesis (https://schemathesis.io) against a gateway: does the API do what /openapi.json says? */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { pythonWith } from './abilities.ts';
import type { Gateway } from './gateway.ts';
import { ROOT } from './where.ts';

export const SCHEMATHESIS_ROLES = ['operator', 'provider', 'consumer'] as const;
export type SchemathesisRole = (typeof SCHEMATHESIS_ROLES)[number];

export interface SchemathesisRun {
  /**
   * `coverage`: each bound of each schema, kept and violated. `fuzzing`: random values, `examples` of them for each
   * operation.
   */
  phases: readonly ('examples' | 'coverage' | 'fuzzing')[];
  examples: number;
  timeoutMs: number;
}

export const PYTHON = pythonWith(ROOT, 'schemathesis');
export const NO_PYTHON = 'no Python with schemathesis: set OTELA_TEST_PYTHON, or let .ci/run make .ci/venv';

/** Creates a key for each role; that of the provider belongs to `lab`. */
export async function keysOfRoles(gateway: Gateway): Promise<Record<SchemathesisRole, string>> {
  const keyOf = async (body: object) => {
    const user = (await gateway.admin('POST', 'users', { name: 'Somebody', ...body })) as { id: string };
    return ((await gateway.admin('POST', 'keys', { name: 'key', user_id: user.id, ...body })) as { key: string }).key;
  };
  return {
    operator: gateway.adminKey,
    provider: await keyOf({ role: 'provider', provider: 'lab' }),
    consumer: await keyOf({ role: 'consumer' }),
  };
}

/** Returns its report, and whether it found a problem. */
export function schemathesis(
  gateway: Gateway,
  key: string,
  { phases, examples, timeoutMs }: SchemathesisRun,
): Promise<{ found: boolean; report: string }> {
  if (PYTHON === undefined) throw new Error(NO_PYTHON);
  const config = join(ROOT, 'test/support/schemathesis.toml');
  const args = ['-m', 'schemathesis.cli', '--config-file', config, 'run', `${gateway.url}/openapi.json`];
  args.push(
    '--header',
    `Authorization: Bearer ${key}`,
    '--phases',
    phases.join(','),
    '--max-examples',
    String(examples),
  );
  return new Promise((resolve) => {
    execFile(
      PYTHON,
      args,
      { cwd: gateway.data, timeout: timeoutMs, maxBuffer: 64 * 1024 * 1024 },
      (error, stdout, stderr) => resolve({ found: error !== null, report: `${stdout}\n${stderr}` }),
    );
  });
}

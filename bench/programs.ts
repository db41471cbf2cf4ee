import { Managed } from '../test/support/processes.ts';

const ANSWERS_MS = 10_000;

/** The version that a system program prints. @throws Error that names `debian`, the package that contains it */
export async function versionOf(command: string[], version: RegExp, debian: string): Promise<string> {
  const child = new Managed(command);
  await child.end(ANSWERS_MS);
  const [, found] = version.exec(child.output) ?? [];
  if (found === undefined) throw new Error(`${command[0]} is not installed (Debian: ${debian})`);
  return found;
}

export const wrkVersion = () => versionOf(['wrk', '-v'], /wrk (\S+)/, 'wrk');

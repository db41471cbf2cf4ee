/** A release of this clone, for OTELA_RELEASE on the pages. */
import { execFileSync } from 'node:child_process';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { BUILT_VARIABLE, NODE, ROOT } from '../support/where.ts';

let made: Promise<string> | undefined;
const removeAtEnd: string[] = [];
afterAll(() => Promise.all(removeAtEnd.map((one) => rm(one, { recursive: true, force: true }))));

/** The address of a signed release, which is made once per test file and is readable by every user of the machine. */
export function release(): Promise<string> {
  made ??= (async () => {
    const directory = await mkdtemp(join(tmpdir(), 'otela-quickstart-release-'));
    removeAtEnd.push(directory);
    const [key, out] = [join(directory, 'key.pem'), join(directory, 'release')];
    const main = join(ROOT, 'packaging/main.ts');
    const run = (...args: string[]) => execFileSync(NODE, [main, ...args], { cwd: ROOT, encoding: 'utf8' });
    run('--new-key', key);
    const built = process.env[BUILT_VARIABLE] === undefined ? [] : ['--no-build'];
    const platform = `${process.platform}-${process.arch}`;
    run('--key', key, '--out', out, '--platform', platform, '--without', 'image', ...built);
    await chmod(directory, 0o755);
    return `file://${out}`;
  })();
  return made;
}

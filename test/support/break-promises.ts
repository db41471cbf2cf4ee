/**
 * `npm run test:promises` checks each promise: if the line that keeps it is broken, its test must fail. `-- WORD`: only
 * promises that contain the word.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { PROMISES, type Promised } from '../promises.ts';
import { isShort } from '../tiers.ts';
import { testPattern } from './reporter.ts';
import { vitestRun } from './vitest-run.ts';
import { ROOT } from './where.ts';

/** A copy of the clone's current state: no editor sees a broken line, and none is left after an interruption. */
function copyOfClone(directory: string): string {
  const copy = join(directory, 'clone');
  const listed = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], {
    cwd: ROOT,
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  });
  // Git lists a deleted file until the deletion is committed. File times stay, so that the page in dist/ is not older
  // than its sources.
  for (const path of new Set(listed.split('\n')))
    if (path !== '') cpSync(join(ROOT, path), join(copy, path), { preserveTimestamps: true, force: true });
  symlinkSync(join(ROOT, 'dist'), join(copy, 'dist'));
  // Tests of the gateway must load the vitest that runs them: a second one has no runner.
  cpSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'), { recursive: true, verbatimSymlinks: true });
  return copy;
}

/** Returns why the test does not prove this promise; undefined if it does. */
async function unproven(
  { file, test, breaks }: Promised,
  copy: string,
  directory: string,
): Promise<string | undefined> {
  const project = file.split('/', 1).join();
  const path = `test/${file}.test.ts`;
  if (!isShort(project, path)) return `${path} is not in the short form`;
  const target = join(copy, breaks.file);
  const whole = readFileSync(target, 'utf8');
  const [before, after, ...more] = whole.split(breaks.line);
  if (before === undefined || after === undefined || more.length > 0)
    return `${breaks.file} has the line ${more.length > 0 ? 'several times' : 'no more'}: ${breaks.line}`;
  const run = async (name: string) => {
    const files = [path, '-t', testPattern(test)];
    return vitestRun(project, files, {
      id: `promise-${name}`,
      directory,
      env: { ...process.env, PATH: `${join(copy, 'node_modules/.bin')}${delimiter}${process.env.PATH ?? ''}` },
      title: name,
      cwd: copy,
      quiet: true,
    });
  };
  const good = await run('whole');
  if (good.passed === 0 || good.failures.length > 0)
    return `the test does not pass before the line is broken: ${good.failures[0]?.message ?? 'no test of that name'}`;
  writeFileSync(target, `${before}${breaks.broken}${after}`);
  const bad = await run('broken');
  writeFileSync(target, whole);
  if (bad.failures.some((failure) => failure.test !== undefined)) return undefined;
  return bad.failures.length > 0
    ? `the file broke, and not the test: ${bad.failures[0]?.message}`
    : 'the test stays green';
}

const word = process.argv[2] ?? '';
const directory = mkdtempSync(join(tmpdir(), 'otela-promises-'));
let failed = 0;
try {
  const copy = copyOfClone(directory);
  for (const promised of PROMISES.filter(({ promise }) => promise.includes(word))) {
    const why = await unproven(promised, copy, directory);
    if (why !== undefined) failed++;
    console.log(
      `${why === undefined ? 'proven' : 'NOT PROVEN'}: ${promised.promise}${why === undefined ? '' : `: ${why}`}`,
    );
  }
} finally {
  rmSync(directory, { recursive: true, force: true });
}
process.exitCode = failed === 0 ? 0 : 1;

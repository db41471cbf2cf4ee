/**
 * `npm run soak`: the long forms of the tests that CI runs in short form, one after the other, because each needs the
 * machine for itself. `npm run soak -- NAME…` runs some of them, and `npm run soak -- NAME -- FLAG…` one of them with
 * flags. `--list` lists them. Exit code 1 if one fails.
 */
import { spawn } from 'node:child_process';
import { parseArgs } from 'node:util';
import { NODE, ROOT } from '../support/where.ts';
import { LONG_FORMS, type LongForm, named } from './long-forms.ts';

async function run({ argv }: LongForm, flags: readonly string[]): Promise<boolean> {
  const child = spawn(NODE, [...argv, ...flags], { cwd: ROOT, stdio: 'inherit' });
  const { promise, resolve } = Promise.withResolvers<boolean>();
  child.once('error', () => resolve(false));
  child.once('exit', (code) => resolve(code === 0));
  return promise;
}

async function main(args: readonly string[]): Promise<number> {
  const end = args.indexOf('--');
  const flags = end < 0 ? [] : args.slice(end + 1);
  const { values, positionals } = parseArgs({
    args: args.slice(0, end < 0 ? undefined : end),
    options: { list: { type: 'boolean', default: false } },
    allowPositionals: true,
  });
  if (values.list) {
    for (const { name, minutes, what } of LONG_FORMS) console.log(`${name.padEnd(12)} ${minutes} min  ${what}`);
    return 0;
  }
  const chosen = named(positionals, flags);
  if (typeof chosen === 'string') {
    console.error(chosen);
    return 2;
  }
  const told: string[] = [];
  for (const form of chosen) {
    console.log(`\n== ${form.name}: ${form.what} (about ${form.minutes} minutes)`);
    const startedAt = Date.now();
    const held = await run(form, flags);
    told.push(
      `${held ? 'ok    ' : 'FAILED'} ${form.name} after ${((Date.now() - startedAt) / 60_000).toFixed(1)} minutes`,
    );
  }
  console.log(`\n${told.join('\n')}`);
  return told.every((line) => line.startsWith('ok')) ? 0 : 1;
}

process.exitCode = await main(process.argv.slice(2));

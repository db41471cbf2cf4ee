/** `otela-agent config`: every setting, its value, and where that came from. Takes the flags of `start`. */

import { EXIT_DONE } from '../config/exit.ts';
import { type FlagSpec, parseFlags, refuseStray } from '../config/flags.ts';
import { SETTINGS, START_FLAGS, settingName } from '../config/settings.ts';
import { type Env, readSettings } from '../config/sources.ts';
import { JSON_FLAG } from './choose.ts';
import type { Io } from './io.ts';

export const FLAGS: readonly FlagSpec[] = [...START_FLAGS, JSON_FLAG];

export function configCommand(argv: readonly string[], env: Env, io: Io): number {
  const { flags, positionals } = parseFlags(argv, FLAGS);
  refuseStray(positionals);
  const { values, warnings } = readSettings(flags, env);
  const rows = SETTINGS.map((setting) => {
    const found = values.get(settingName(setting));
    const secret = 'secret' in setting;
    return {
      name: setting.flag === '' ? setting.env : setting.flag,
      value: found ? (secret ? '(set)' : found.values.join(', ')) : null,
      source: found?.source ?? ('otherwise' in setting ? `default: ${setting.otherwise}` : 'not set'),
    };
  });
  if (flags.has('json')) io.out(JSON.stringify(rows, null, 2));
  else {
    const [wide, wider] = [widest(rows.map(({ name }) => name)), widest(rows.map(({ value }) => value ?? '-'))];
    for (const { name, value, source } of rows)
      io.out(`${name.padEnd(wide)}  ${(value ?? '-').padEnd(wider)}  ${source}`);
  }
  for (const warning of warnings) io.log(`warning: ${warning}`);
  return EXIT_DONE;
}

function widest(texts: readonly string[]): number {
  return Math.min(60, Math.max(...texts.map(({ length }) => length)));
}

/** `otela-agent config`: every setting with its value and source. Takes the flags of `start`. */

import { type Command, EXIT_DONE, JSON_FLAG, parseLine } from '../../shared/command-line/index.ts';
import { SETTINGS, START_FLAGS } from '../config/all-settings.ts';
import { readSettingValues } from '../config/setting-sources.ts';
import type { CommandContext } from './command-context.ts';

const FLAGS = { ...START_FLAGS, ...JSON_FLAG };

export const CONFIG_COMMAND: Command<CommandContext> = {
  summary: 'show every setting and the source of its value',
  examples: `[flags of start] [--json]

Shows each setting, its value and the source of the value. For a secret, it shows (set).
  OTELA_REGION=eu-central otela-agent config --tier stable

The file (--config, OTELA_CONFIG, otherwise ~/.config/otela-agent/config) has one setting per line:
  gateway = https://gw.example.org
  token-file = ~/.otela-token
  label = project=a123`,
  flags: FLAGS,
  run: configCommand,
};

function configCommand(argv: readonly string[], { env, io }: CommandContext): number {
  const {
    given,
    values: { json },
  } = parseLine(argv, FLAGS);
  const { values, warnings } = readSettingValues(given, env);
  const rows = SETTINGS.map((setting) => {
    const found = values.get(setting.env);
    const { secret, otherwise } = setting;
    return {
      name: setting.flag === '' ? setting.env : setting.flag,
      value: found ? (secret ? '(set)' : found.values.join(', ')) : null,
      source: found?.source ?? (otherwise === undefined ? 'not set' : `default: ${otherwise}`),
    };
  });
  if (json) io.out(JSON.stringify(rows, null, 2));
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

import { SETTINGS } from '../../../agent/config/all-settings.ts';
import { SettingReader } from '../../../agent/config/setting.ts';

/** Settings as flags give them. */
export function settingsOf(
  flags: Readonly<Record<string, readonly string[]>>,
  variables: Readonly<Record<string, string>> = {},
): SettingReader {
  const given = SETTINGS.flatMap(({ flag, env }) => {
    const values = flags[flag];
    return values === undefined ? [] : [[env, { values: [...values], source: `--${flag}` }] as const];
  });
  return new SettingReader(new Map(given), variables, []);
}

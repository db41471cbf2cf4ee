/** Settings that exclude each other: a flag must be able to override another setting from the file. */
import { UsageError } from '../../shared/command-line/index.ts';
import type { SettingValues } from './setting-sources.ts';
import type { SettingName } from './settings.ts';

/** Flags take precedence over the environment, and the environment over the file. */
export function sourcePrecedence(source: string): number {
  if (source.startsWith('--')) return 2;
  return source.startsWith('OTELA_') ? 1 : 0;
}

/** The engine's command can be given only on the command line. */
const COMMAND_RANK = 2;

/**
 * Of settings that exclude each other about the engine or its address, keeps the ones of the highest rank. Throws
 * UsageError if two have it.
 */
export function resolveConflicts(settings: SettingValues, command: readonly string[] | undefined): SettingValues {
  const values = new Map(settings.values);
  const ranked = (...names: SettingName[]) =>
    names
      .flatMap((name) => {
        const source = values.get(name)?.source;
        return source === undefined ? [] : [{ name, said: `--${name}`, source, rank: sourcePrecedence(source) }];
      })
      .sort((a, b) => b.rank - a.rank);
  const [accept] = ranked('accept-deployments');
  const [engine] = ranked('engine-url', 'engine-port');
  const other = command === undefined ? engine : { said: 'a command', rank: COMMAND_RANK };
  if (accept !== undefined && other !== undefined) {
    if (accept.rank === other.rank)
      throw new UsageError(`--accept-deployments and ${other.said} both say what runs here: give one`);
    const overruled: SettingName[] = accept.rank < other.rank ? ['accept-deployments'] : ['engine-url', 'engine-port'];
    for (const name of overruled) values.delete(name);
  }
  const [first, second] = ranked('engine-url', 'engine-port');
  if (first !== undefined && second !== undefined) {
    if (first.rank === second.rank)
      throw new UsageError(`${first.source} and ${second.source} both say where the engine is: give one`);
    values.delete(second.name);
  }
  return { ...settings, values };
}

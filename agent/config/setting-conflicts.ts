/** Resolves settings that exclude each other. A flag must be able to override a different setting from the file. */
import { UsageError } from '../../shared/command-line/index.ts';
import { DEPLOYMENT_SETTINGS } from './deployments-config.ts';
import { ENGINE_SETTINGS } from './engine-config.ts';
import { type GivenSettings, type Setting, sourcePrecedence } from './setting.ts';

/** Rank of the engine's command. A command can be given only on the command line, so it ranks like a flag. */
const COMMAND_RANK = 2;

/**
 * Resolves conflicts between `--accept-deployments`, `--engine-url`, `--engine-port` and the engine's command. Keeps
 * the setting of the highest rank, and removes those that exclude it.
 * @throws UsageError if two of them have the highest rank
 */
export function resolveConflicts(given: GivenSettings, command: readonly string[] | undefined): GivenSettings {
  const { enginePort, engineUrl } = ENGINE_SETTINGS;
  const { templates } = DEPLOYMENT_SETTINGS;
  const values = new Map(given);
  const ranked = (...settings: Setting<unknown>[]) =>
    settings
      .flatMap((setting) => {
        const source = values.get(setting.env)?.source;
        return source === undefined
          ? []
          : [{ setting, said: `--${setting.flag}`, source, rank: sourcePrecedence(source) }];
      })
      .sort((a, b) => b.rank - a.rank);
  const [accept] = ranked(templates);
  const [engine] = ranked(engineUrl, enginePort);
  const other = command === undefined ? engine : { said: 'a command', rank: COMMAND_RANK };
  if (accept !== undefined && other !== undefined) {
    if (accept.rank === other.rank)
      throw new UsageError(`--accept-deployments and ${other.said} both set which engine runs here: give only one`);
    const overruled = accept.rank < other.rank ? [templates] : [engineUrl, enginePort];
    for (const { env } of overruled) values.delete(env);
  }
  const [first, second] = ranked(engineUrl, enginePort);
  if (first !== undefined && second !== undefined) {
    if (first.rank === second.rank)
      throw new UsageError(`${first.source} and ${second.source} both set the engine's address: give only one`);
    values.delete(second.setting.env);
  }
  return values;
}

/**
 * Reads values from the configuration file, the environment and flags. Flags override the environment, and the
 * environment overrides the file. Each value remembers its source.
 */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { UsageError } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { nearestName } from '../../shared/text/nearest-name.ts';
import { CONFIG_FILE, SETTINGS } from './all-settings.ts';
import { TOKEN_SETTINGS } from './gateways-config.ts';
import { expandHome, homeOf, readableByOthers, readBounded } from './secret-file.ts';
import type { Env, GivenSettings, Setting, SourcedTexts } from './setting.ts';

export interface SettingValues {
  values: GivenSettings;
  warnings: string[];
}

/** Maximum size of a configuration file, which is written by hand. */
const CONFIG_FILE_MAX_BYTES = 64 * 1024;
/** Variables that are not settings: readers of docs/install.md set the address of a release in each terminal. */
const NOT_SETTINGS = ['OTELA_RELEASE'];

export function readSettingValues(flags: ReadonlyMap<string, readonly string[]>, env: Env): SettingValues {
  const warnings: string[] = [];
  const values = readConfigFile(flags, env, warnings);
  for (const { env: name, kind, separator } of SETTINGS) {
    const value = env[name];
    // An empty variable counts as not set, as with FOO="$UNSET" in a shell.
    if (value === undefined || value === '') continue;
    values.set(name, { values: kind === 'repeat' ? splitList(value, separator) : [value], source: name });
  }
  for (const setting of SETTINGS) {
    const given = setting.flag === '' ? undefined : flags.get(setting.flag);
    if (!given) continue;
    values.set(setting.env, {
      values: given.flatMap((text) => listed(setting, text)),
      source: `--${setting.flag}`,
    });
  }
  warnings.push(...mistypedVariables(env));
  return { values, warnings };
}

/** Splits a value of a flag or of the file, unless commas belong to the value, as in labels and facts. */
function listed({ commas }: Setting<unknown>, text: string): string[] {
  return commas ? splitList(text, ',') : [text];
}

function splitList(text: string, separator: string): string[] {
  return text
    .split(separator)
    .map((item) => item.trim())
    .filter((item) => item !== '');
}

function mistypedVariables(env: Env): string[] {
  const known: readonly string[] = SETTINGS.map((setting) => setting.env);
  return Object.keys(env).flatMap((name) => {
    if (!name.startsWith('OTELA_') || known.includes(name) || NOT_SETTINGS.includes(name)) return [];
    const near = nearestName(name, known);
    return near ? [`${name} is not a setting; did you mean ${near}?`] : [];
  });
}

function readConfigFile(
  flags: ReadonlyMap<string, readonly string[]>,
  env: Env,
  warnings: string[],
): Map<string, SourcedTexts> {
  const named = flags.get('config')?.at(-1) ?? (env.OTELA_CONFIG || undefined);
  const path = named === undefined ? usualConfigFile(env) : expandHome(named, env);
  if (path === undefined) return new Map();
  const text = named === undefined ? readOptional(path, warnings) : readBounded(path, CONFIG_FILE_MAX_BYTES);
  const values = text === undefined ? new Map<string, SourcedTexts>() : parseConfig(text, path);
  if (values.has(TOKEN_SETTINGS.token.env) && readableByOthers(path)) {
    warnings.push(`${path} contains a token, and other users can read it: chmod 600 ${path}`);
  }
  return values;
}

/** Undefined if there is neither a home directory nor a configuration directory. */
function usualConfigFile(env: Env): string | undefined {
  const home = homeOf(env);
  const configHome = env.XDG_CONFIG_HOME || (home === undefined ? undefined : join(home, '.config'));
  return configHome === undefined ? undefined : join(configHome, 'otela-agent', 'config');
}

function parseConfig(text: string, path: string): Map<string, SourcedTexts> {
  const values = new Map<string, SourcedTexts>();
  const settings = SETTINGS.filter((setting) => setting.flag !== '' && setting !== CONFIG_FILE);
  const names = settings.map(({ flag }) => flag);
  for (const [index, raw] of text.split('\n').entries()) {
    const line = raw.trim();
    if (line === '' || line.startsWith('#')) continue;
    const where = `${path}:${index + 1}`;
    const at = line.indexOf('=');
    if (at < 1) throw new UsageError(`${where}: expected "name = value"`);
    const name = line.slice(0, at).trim();
    const value = line.slice(at + 1).trim();
    const setting = settings.find(({ flag }) => flag === name);
    if (!setting) {
      const near = nearestName(name, names);
      throw new UsageError(`${where}: unknown setting "${name}"${near ? `; did you mean "${near}"?` : ''}`);
    }
    const before = setting.kind === 'repeat' ? (values.get(setting.env)?.values ?? []) : [];
    values.set(setting.env, { values: [...before, ...listed(setting, value)], source: where });
  }
  return values;
}

/** Undefined if the default path has no file. */
function readOptional(path: string, warnings: string[]): string | undefined {
  try {
    return readBounded(path, CONFIG_FILE_MAX_BYTES);
  } catch (error) {
    // A missing home directory needs no warning, because compute nodes often do not mount it. A file that exists and
    // cannot be read does.
    if (mayExist(path)) warnings.push(errorText(error));
    return undefined;
  }
}

function mayExist(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch {
    return true; // the file is in a directory that this process may not enter, such as /root in a container that runs as another user
  }
}

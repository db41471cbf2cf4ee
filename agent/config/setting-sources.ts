/** Configuration file < environment < flags; each value has its source. */
import { statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { readBoundedFile } from '../../node/bounded-file.ts';
import { canOthersRead } from '../../node/private-file.ts';
import { UsageError } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { nearestName } from '../../shared/text/nearest.ts';
import { SETTINGS, type SettingName, settingName } from './settings.ts';

export type Env = Readonly<Record<string, string | undefined>>;

interface Sourced {
  /** As written, with one entry per repetition. */
  values: string[];
  /** `--flag`, `OTELA_X` or `FILE:LINE`. */
  source: string;
}

export interface SettingValues {
  values: Map<SettingName, Sourced>;
  warnings: string[];
}

/** A configuration file is written by hand; a longer file is not one. */
const CONFIG_FILE_MAX_BYTES = 64 * 1024;

/** A token or key file has one line. */
const SECRET_FILE_MAX_BYTES = 16 * 1024;

export function readSettingValues(flags: ReadonlyMap<string, readonly string[]>, env: Env): SettingValues {
  const warnings: string[] = [];
  const values = new Map<SettingName, Sourced>();
  for (const [name, sourced] of readConfigFile(flags, env, warnings)) values.set(name, sourced);
  for (const setting of SETTINGS) {
    const value = env[setting.env];
    // An empty variable means "not set" in a shell: FOO="$UNSET".
    if (value === undefined || value === '') continue;
    values.set(settingName(setting), {
      // A comma is an ordinary character of a pattern, so patterns are separated by line breaks.
      values: setting.kind === 'repeat' ? splitList(value, setting.flag === 'fatal-pattern' ? '\n' : ',') : [value],
      source: setting.env,
    });
  }
  for (const setting of SETTINGS) {
    const given = setting.flag === '' ? undefined : flags.get(setting.flag);
    if (!given) continue;
    // Commas also separate gateways in a flag; in labels and facts they belong to the value.
    const list = setting.flag === 'gateway' ? given.flatMap((text) => splitList(text)) : given;
    values.set(settingName(setting), { values: [...list], source: `--${setting.flag}` });
  }
  warnings.push(...mistypedVariables(env));
  return { values, warnings };
}

function splitList(text: string, separator = ','): string[] {
  return text
    .split(separator)
    .map((item) => item.trim())
    .filter((item) => item !== '');
}

function mistypedVariables(env: Env): string[] {
  const known: readonly string[] = SETTINGS.map((setting) => setting.env);
  return Object.keys(env).flatMap((name) => {
    if (!name.startsWith('OTELA_') || known.includes(name)) return [];
    const near = nearestName(name, known);
    return near ? [`${name} is not a setting; did you mean ${near}?`] : [];
  });
}

function readConfigFile(
  flags: ReadonlyMap<string, readonly string[]>,
  env: Env,
  warnings: string[],
): Map<SettingName, Sourced> {
  const named = flags.get('config')?.at(-1) ?? (env.OTELA_CONFIG || undefined);
  const path = named === undefined ? usualConfigFile(env) : expandHome(named, env);
  if (path === undefined) return new Map();
  const text = named === undefined ? readOptional(path, warnings) : readBounded(path, CONFIG_FILE_MAX_BYTES);
  const values = text === undefined ? new Map<SettingName, Sourced>() : parseConfig(text, path);
  if (values.has('token') && readableByOthers(path)) {
    warnings.push(`${path} holds a token and others may read it: chmod 600 ${path}`);
  }
  return values;
}

function readableByOthers(path: string): boolean {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat !== undefined && canOthersRead(stat);
}

/** Undefined if there is no home and no configuration directory. */
function usualConfigFile(env: Env): string | undefined {
  const home = homeOf(env);
  const configHome = env.XDG_CONFIG_HOME || (home === undefined ? undefined : join(home, '.config'));
  return configHome === undefined ? undefined : join(configHome, 'otela-agent', 'config');
}

/**
 * Undefined without HOME in a container with a user that is missing from /etc/passwd: there `homedir` throws, and the
 * agent would end.
 */
function homeOf(env: Env): string | undefined {
  if (env.HOME) return env.HOME;
  try {
    return homedir();
  } catch {
    return undefined;
  }
}

function parseConfig(text: string, path: string): Map<SettingName, Sourced> {
  const values = new Map<SettingName, Sourced>();
  const names: readonly string[] = SETTINGS.flatMap(({ flag }) => (flag === '' || flag === 'config' ? [] : [flag]));
  for (const [index, raw] of text.split('\n').entries()) {
    const line = raw.trim();
    if (line === '' || line.startsWith('#')) continue;
    const where = `${path}:${index + 1}`;
    const at = line.indexOf('=');
    if (at < 1) throw new UsageError(`${where}: expected "name = value"`);
    const name = line.slice(0, at).trim();
    const value = line.slice(at + 1).trim();
    const setting = SETTINGS.find(({ flag }) => flag === name && names.includes(name));
    if (!setting) {
      const near = nearestName(name, names);
      throw new UsageError(`${where}: unknown setting "${name}"${near ? `; did you mean "${near}"?` : ''}`);
    }
    const before = setting.kind === 'repeat' ? (values.get(settingName(setting))?.values ?? []) : [];
    const added = setting.flag === 'gateway' ? splitList(value) : [value];
    values.set(settingName(setting), { values: [...before, ...added], source: where });
  }
  return values;
}

/** The only secret in `path`, without the newline that editors add. */
export function readSecretFile(name: string, path: string, env: Env): { secret: string; warnings: string[] } {
  const full = expandHome(path, env);
  const secret = readBounded(full, SECRET_FILE_MAX_BYTES).trim();
  const warnings = readableByOthers(full) ? [`${full} can be read by others: chmod 600 ${full}`] : [];
  if (secret === '') throw new UsageError(`${name}: ${full} is empty`);
  return { secret, warnings };
}

function expandHome(path: string, env: Env): string {
  if (!path.startsWith('~/')) return path;
  const home = homeOf(env);
  if (home === undefined) throw new UsageError(`${path}: this user has no home here: set HOME, or give the whole path`);
  return join(home, path.slice(2));
}

/** Undefined if the default path has no file. */
function readOptional(path: string, warnings: string[]): string | undefined {
  try {
    return readBounded(path, CONFIG_FILE_MAX_BYTES);
  } catch (error) {
    // A home that compute nodes do not mount is normal; a file that exists and cannot be read needs a warning.
    if (mayExist(path)) warnings.push(errorText(error));
    return undefined;
  }
}

function mayExist(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch {
    return true; // inside a directory that this process may not enter, such as /root in a container that runs as another user
  }
}

function readBounded(path: string, maxBytes: number): string {
  try {
    return readBoundedFile(path, maxBytes);
  } catch (error) {
    throw new UsageError(`cannot read ${path}: ${errorText(error)}`);
  }
}

/**
 * The text is sent in a header. A line break would end the header, and characters outside ASCII would arrive changed or
 * not at all.
 * @throws UsageError
 */
export function requireHeaderWord(what: string, text: string): string {
  const word = text.trim();
  if (/^[\x21-\x7e]{1,4096}$/.test(word)) return word;
  throw new UsageError(`${what} is not one word of printable ASCII characters`);
}

/** One row per setting: its flag, variable, help, parser and default. A table of rows is parsed by `SettingReader`. */
import { UsageError } from '../../shared/command-line/index.ts';
import { parseDuration } from './duration.ts';

export type Env = Readonly<Record<string, string | undefined>>;

/** The texts that a user wrote for one setting, and their source. */
export interface SourcedTexts {
  /** The values as written, one entry per repetition. */
  values: readonly string[];
  /** `--flag`, `OTELA_X` or `FILE:LINE`. */
  source: string;
}

/** What a parser may use in addition to the text. */
export interface ParseContext {
  source: string;
  env: Env;
  warn(text: string): void;
}

interface Row {
  /**
   * Name of the flag without `--`, and the name in the configuration file. Empty if there is no flag, so that `ps`
   * cannot show the value.
   */
  flag: string;
  env: string;
  help: string;
  /** The value is never shown, not even by `otela-agent config`. */
  secret?: true;
  /** Text for the default in the help. */
  otherwise?: string;
}

export interface Setting<T> extends Row {
  /** `value`: the last text counts. `repeat`: every text counts. `switch`: the flag takes no text. */
  kind: 'value' | 'repeat' | 'switch';
  /** Placeholder of the value in the help. */
  value: string;
  /** Separator of values in the environment variable. */
  separator: ',' | '\n';
  /** True if commas also separate values in the flag and in the file. */
  commas: boolean;
  /** @param texts undefined if the setting is not given @throws UsageError */
  parse(texts: readonly string[] | undefined, context: ParseContext): T;
}

/** Settings that were given, by the name of their environment variable. */
export type GivenSettings = ReadonlyMap<string, SourcedTexts>;
export type SettingTable = Readonly<Record<string, Setting<unknown>>>;
export type ParsedSettings<T extends SettingTable> = { [K in keyof T]: ReturnType<T[K]['parse']> };

interface ValueRow<T> extends Row {
  value: string;
  parse(text: string, context: ParseContext): T;
}

/** A setting; if it is given more than once, the last value counts. `default` is parsed like a given value. */
export function valueSetting<T>(row: Omit<ValueRow<T>, 'otherwise'> & { default: string }): Setting<T>;
/**
 * A setting; if it is given more than once, the last value counts. If it is not given, `unset` computes the value,
 * and `otherwise` describes that value in the help.
 */
export function valueSetting<T>(row: ValueRow<T> & { unset(context: ParseContext): T }): Setting<T>;
export function valueSetting<T>(row: ValueRow<T>): Setting<T | undefined>;
export function valueSetting<T>({
  parse,
  default: text,
  unset,
  ...row
}: ValueRow<T> & { default?: string; unset?(context: ParseContext): T }): Setting<T | undefined> {
  return {
    ...row,
    ...(text === undefined ? {} : { otherwise: text }),
    kind: 'value',
    separator: ',',
    commas: false,
    parse: (texts, context) => {
      const given = texts?.at(-1) ?? text;
      return given === undefined ? unset?.(context) : parse(given, context);
    },
  };
}

interface ListRow<T> extends Row, Partial<Pick<Setting<T>, 'separator' | 'commas'>> {
  value: string;
  /** @param texts empty if the setting is not given */
  parse(texts: readonly string[], context: ParseContext): T;
}

/** A setting that collects all values. */
export function listSetting<T>({ parse, separator = ',', commas = false, ...row }: ListRow<T>): Setting<T> {
  return { ...row, kind: 'repeat', separator, commas, parse: (texts = [], context) => parse(texts, context) };
}

export function switchSetting(row: Row): Setting<boolean> {
  return {
    ...row,
    kind: 'switch',
    value: '',
    separator: ',',
    commas: false,
    parse: (texts) => isOn(row.flag, texts?.at(-1) ?? 'false'),
  };
}

function isOn(name: string, text: string): boolean {
  if (/^(1|true|yes|on)$/i.test(text)) return true;
  if (/^(0|false|no|off)$/i.test(text)) return false;
  throw new UsageError(`${name}: "${text}" is neither true nor false`);
}

/** Parses tables of settings, and collects warnings. */
export class SettingReader {
  readonly env: Env;
  readonly #given: GivenSettings;
  readonly #warnings: string[];

  constructor(given: GivenSettings, env: Env, warnings: string[]) {
    this.#given = given;
    this.env = env;
    this.#warnings = warnings;
  }

  /** Parses only the rows of this table, so that an invalid value of an unused setting does no harm. */
  read<const T extends SettingTable>(table: T): ParsedSettings<T> {
    return Object.fromEntries(
      Object.entries(table).map(([name, setting]) => {
        const given = this.#given.get(setting.env);
        const source = given?.source ?? `--${setting.flag}`;
        return [name, setting.parse(given?.values, { source, env: this.env, warn: this.warn })];
      }),
    ) as ParsedSettings<T>;
  }

  /** True if any of the settings was given. */
  has(...settings: Setting<unknown>[]): boolean {
    return settings.some(({ env }) => (this.#given.get(env)?.values ?? []).length > 0);
  }

  readonly warn = (text: string): void => void this.#warnings.push(text);
}

export const plainText = (text: string): string => text;
/** Returns the text with its source, for rules about combinations of settings. */
export const sourcedText = (text: string, { source }: ParseContext): { text: string; source: string } => ({
  text,
  source,
});
export const sourcedDuration = (text: string, { source }: ParseContext): number => parseDuration(text, source);

/** @throws UsageError if `text` is not a whole number from 1 to `most` */
export function wholeNumber(name: string, text: string, most: number): number {
  const value = /^\d{1,7}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= 1 && value <= most) return value;
  throw new UsageError(`${name}: "${text}" is not a number from 1 to ${most}`);
}

/** Rank of a source. A flag ranks above an environment variable, and a variable above the configuration file. */
export function sourcePrecedence(source: string): number {
  if (source.startsWith('--')) return 2;
  return source.startsWith('OTELA_') ? 1 : 0;
}

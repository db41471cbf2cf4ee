/** A command's flags as a table, and the parser for it. */
import { nearestName } from '../text/nearest-name.ts';
import { UsageError } from './usage-error.ts';

/**
 * The values that a shell may complete: none (`word`), files, directories, commands on the PATH, or the listed words.
 */
export type AcceptedValues = 'word' | 'file' | 'directory' | 'command' | readonly string[];

export interface Flag {
  help: string;
  /** Placeholder for the value in the help. A flag without a placeholder is a switch. */
  value?: string;
  default?: string;
  /** Text for the default in the help. */
  otherwise?: string;
  /**
   * If the flag occurs several times, all of its values count, in order. Without `repeat`, only the last value counts.
   */
  repeat?: true;
  /** The short form, one letter. */
  short?: string;
  /** True if the value and everything after it are another program's command line, as after `--`. */
  rest?: true;
  takes?: AcceptedValues;
}

export type Flags = Readonly<Record<string, Flag>>;

export interface CommandDescription {
  /** The command in one line, for the list of commands. */
  summary: string;
  /**
   * Usage and examples. The help of a command is the program's and the command's name, this text, and the table of
   * flags.
   */
  examples: string;
  /** Verbs that may follow the command's name, at most one of them. */
  verbs?: readonly string[];
  /** The kind of further words that may follow the command's name. */
  takes?: AcceptedValues;
  flags: Flags;
}

type ValueOf<F extends Flag> = Flag extends F
  ? string | string[] | boolean | undefined
  : F extends { value: string }
    ? F extends { repeat: true }
      ? string[]
      : F extends { default: string }
        ? string
        : string | undefined
    : boolean;

/** The values by flag: a boolean for a switch, a list for a flag with `repeat`, otherwise the value or its default. */
export type ParsedFlags<F extends Flags> = { [K in keyof F]: ValueOf<F[K]> };

interface ParsedLine<F extends Flags> {
  values: ParsedFlags<F>;
  /** The values on the command line by flag, without defaults. A switch has `['true']`. */
  given: ReadonlyMap<string, readonly string[]>;
  /** Words that belong to no flag, in order. */
  words: string[];
  /** The other program's command line, unchanged; undefined if there is none. */
  command: string[] | undefined;
}

interface Rules {
  /** Maximum number of words that belong to no flag. Default: 0. */
  words?: number;
  /** Returns a hint for the error about too many words. */
  hint?: (words: readonly string[]) => string;
}

export const JSON_FLAG = { json: { help: 'print JSON, for scripts' } } as const satisfies Flags;

/**
 * Parses a command line. Words that begin with `-` may follow after `--`.
 * @throws UsageError for an unknown flag, a missing value, a value of a switch, or too many words
 */
export function parseLine<const F extends Flags>(args: readonly string[], flags: F, rules: Rules = {}): ParsedLine<F> {
  const known: Flags = flags;
  const given = new Map<string, string[]>();
  const words: string[] = [];
  const rest = restFlag(known);
  let command: string[] | undefined;
  for (let at = 0; at < args.length && command === undefined; at++) {
    const arg = args[at] ?? '';
    if (arg === '--') {
      if (rest !== undefined) command = args.slice(at + 1);
      else if (rules.words === undefined) throw new UsageError('this command accepts no command after --');
      else {
        words.push(...args.slice(at + 1));
        break;
      }
    } else if (!arg.startsWith('-') || arg === '-') words.push(arg);
    else {
      const [, written = arg, inline] = /^(--[^=]+)=(.*)$/s.exec(arg) ?? [];
      const name = nameOf(written, known);
      if (name === rest) command = [...(inline ? [inline] : []), ...args.slice(at + 1)];
      else if (known[name]?.value === undefined) {
        if (inline !== undefined) throw new UsageError(`${written} does not accept a value`);
        given.set(name, ['true']);
      } else {
        const value = inline ?? args[++at];
        // A value that begins with `-` is refused. Otherwise `--cluster -- vllm …` would take `--` as the cluster's
        // name and lose the command.
        if (value === undefined || (inline === undefined && value.startsWith('-')))
          throw new UsageError(`${written} needs a value`);
        given.set(name, [...(known[name].repeat ? (given.get(name) ?? []) : []), value]);
      }
    }
  }
  const surplus = words[rules.words ?? 0];
  if (surplus !== undefined) throw new UsageError(`unexpected argument "${surplus}"${rules.hint?.(words) ?? ''}`);
  return { values: valuesOf(known, given) as ParsedFlags<F>, given, words, command };
}

/** Name of the flag after which another program's command line follows. */
export function restFlag(flags: Flags): string | undefined {
  return Object.keys(flags).find((name) => flags[name]?.rest);
}

function nameOf(written: string, flags: Flags): string {
  const name = written.startsWith('--')
    ? written.slice(2)
    : Object.keys(flags).find((one) => `-${flags[one]?.short}` === written);
  if (name !== undefined && Object.hasOwn(flags, name)) return name;
  const near = nearestName(written.replace(/^-+/, ''), Object.keys(flags));
  throw new UsageError(`unknown flag ${written}${near === undefined ? '' : `; did you mean --${near}?`}`);
}

function valuesOf(flags: Flags, given: ReadonlyMap<string, string[]>): ParsedFlags<Flags> {
  const entries = Object.entries(flags).map(([name, { value, repeat, default: fallback }]) => {
    const written = given.get(name);
    if (value === undefined) return [name, written !== undefined] as const;
    return [name, repeat ? (written ?? []) : (written?.[0] ?? fallback)] as const;
  });
  return Object.fromEntries(entries);
}

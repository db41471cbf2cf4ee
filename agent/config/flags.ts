/** Reads a command line against a list of known flags. */
import { parseArgs } from 'node:util';
import type { Taken } from '../../shared/terminal/completion.ts';
import { nearest } from '../../shared/text/nearest.ts';
import { UsageError } from './exit.ts';

export interface FlagSpec {
  /** Without the dashes. */
  flag: string;
  /** A switch takes no value; `repeat` collects every value. */
  kind: 'value' | 'repeat' | 'switch';
  short?: string;
  /** What a shell may offer for the value; nothing by default. */
  takes?: Taken;
  help?: string;
}

interface ParsedFlags {
  /** Values as written, in order. A switch has `['true']`. */
  flags: Map<string, string[]>;
  positionals: string[];
  /** What stands after `--` or `--process`, untouched; undefined without either. */
  command: string[] | undefined;
}

/** Throws UsageError for an unknown flag, a missing value or a value given to a switch. */
export function parseFlags(argv: readonly string[], specs: readonly FlagSpec[]): ParsedFlags {
  const options: Record<string, { type: 'string' | 'boolean'; short?: string }> = { process: { type: 'string' } };
  for (const { flag, kind, short } of specs) {
    options[flag] = { type: kind === 'switch' ? 'boolean' : 'string', ...(short ? { short } : {}) };
  }
  const { tokens } = parseArgs({ args: [...argv], options, strict: false, allowPositionals: true, tokens: true });
  const parsed: ParsedFlags = { flags: new Map(), positionals: [], command: undefined };
  for (const token of tokens) {
    if (token.kind === 'option-terminator') {
      parsed.command = argv.slice(token.index + 1);
      return parsed;
    }
    if (token.kind === 'positional') {
      parsed.positionals.push(token.value);
      continue;
    }
    if (token.name === 'process') {
      parsed.command = argv.slice(token.index + 1);
      if (token.inlineValue) parsed.command.unshift(token.value);
      return parsed;
    }
    const spec = specs.find(({ flag }) => flag === token.name);
    if (!spec) throw unknownFlag(token.rawName, specs);
    const values = parsed.flags.get(spec.flag) ?? [];
    values.push(readValue(spec, token.rawName, token.value, token.inlineValue ?? false));
    parsed.flags.set(spec.flag, spec.kind === 'repeat' ? values : values.slice(-1));
  }
  return parsed;
}

/** A word that would be passed over may be the one that was meant. Throws UsageError. */
export function refuseStray([stray]: readonly string[], hint = ''): void {
  if (stray !== undefined) throw new UsageError(`"${stray}" is not a flag${hint}`);
}

/** For commands that take flags alone. Throws UsageError. */
export function onlyFlags(argv: readonly string[], specs: readonly FlagSpec[]): ParsedFlags['flags'] {
  const { flags, positionals, command } = parseFlags(argv, specs);
  const named = specs.some(({ flag }) => flag === 'session');
  refuseStray(positionals, named ? `; an agent is named by --session ${positionals[0]}` : '');
  if (command !== undefined) throw new UsageError('only start and doctor take a command');
  return flags;
}

function readValue(spec: FlagSpec, rawName: string, value: string | undefined, inline: boolean): string {
  if (spec.kind === 'switch') {
    if (value !== undefined) throw new UsageError(`${rawName} takes no value`);
    return 'true';
  }
  // `--cluster -- vllm …` would otherwise take `--` for the cluster's name and lose the command.
  if (value === undefined || (!inline && value.startsWith('-'))) throw new UsageError(`${rawName} needs a value`);
  return value;
}

function unknownFlag(rawName: string, specs: readonly FlagSpec[]): UsageError {
  const near = nearest(rawName.replace(/^-+/, ''), [...specs.map(({ flag }) => flag), 'process']);
  return new UsageError(`unknown flag ${rawName}${near ? `; did you mean --${near}?` : ''}`);
}

/** A program with several commands. One table yields its parser, its help, its suggestions and its shell completion. */

import { errorText } from '../text/error-text.ts';
import { nearestName } from '../text/nearest-name.ts';
import { type CommandDescription, type Flags, JSON_FLAG, parseLine, restFlag } from './parse-flags.ts';
import { completionScript, isShell, SHELLS } from './shell-completion.ts';
import { UsageError } from './usage-error.ts';

/** Exit codes that every program has. */
export const EXIT_DONE = 0;
export const EXIT_USAGE = 2;
/** EX_UNAVAILABLE of sysexits.h: the gateway did not answer, or refused. */
export const EXIT_UNAVAILABLE = 69;
/** EX_SOFTWARE of sysexits.h: the program failed. */
export const EXIT_SOFTWARE = 70;

/**
 * A command of a program. `C` is the type of the value that the program passes to its commands in addition to their
 * arguments.
 */
export interface Command<C = void> extends CommandDescription {
  /** Resolves with the exit code. @throws UsageError */
  run(args: readonly string[], context: C): Promise<number> | number;
}

export interface Program<C = void> {
  name: string;
  version: string;
  /** Text above the list of commands in the help. */
  about: string;
  /** The exit codes in one line, for every help. */
  exitCodes: string;
  /** The commands, in the order of the help. */
  commands: Readonly<Record<string, Command<C>>>;
}

/** What a command line requests: a text to print, or a command to run. */
type Asked<C> = { kind: 'print'; text: string } | { kind: 'run'; command: Command<C>; args: readonly string[] };

/** @throws UsageError for an unknown command */
export function readCommand<C>(program: Program<C>, [word, ...args]: readonly string[]): Asked<C> {
  const print = (text: string) => ({ kind: 'print', text }) as const;
  if (word === undefined) throw new UsageError(`a command is missing; the commands are ${namesOf(program).join(', ')}`);
  if (word === '--help' || word === '-h') return print(overview(program));
  if (word === '--version') return print(version(program, args));
  if (asksForHelp(args, commandOf(program, word).flags)) return print(helpText(program, word));
  const command = Object.hasOwn(program.commands, word) ? program.commands[word] : undefined;
  if (command !== undefined) return { kind: 'run', command, args };
  switch (word) {
    case 'version':
      return print(version(program, args));
    case 'completion':
      return print(completion(program, args));
    default:
      return print(args[0] === undefined ? overview(program) : helpText(program, args[0]));
  }
}

/** The error message for a person. If the command line was wrong, the message says which help to read. */
export function commandErrorMessage<C>(
  program: Program<C>,
  [word, ...args]: readonly string[],
  error: unknown,
): string {
  const message = `${program.name}: ${errorText(error)}`;
  if (!(error instanceof UsageError)) return message;
  const about = word !== undefined && namesOf(program).includes(word) ? `${word} ` : '';
  const meant = word === undefined ? undefined : suggestVerb(program, word, args);
  const hint = meant === undefined ? '' : `\nDid you mean ${word} ${meant}?`;
  return `${message}${hint}\nTry: ${program.name} ${about}--help`;
}

/** The command's verb that is most similar to a word on the command line. */
function suggestVerb<C>(program: Program<C>, word: string, [verb = '']: readonly string[]): string | undefined {
  const commands = allCommands(program);
  const verbs = Object.hasOwn(commands, word) ? (commands[word]?.verbs ?? []) : [];
  return verb === '' || verb.startsWith('-') || verbs.includes(verb) ? undefined : nearestName(verb, verbs);
}

/** Commands that every program has. readCommand runs them itself. */
const OWN: Readonly<Record<string, CommandDescription>> = {
  completion: {
    summary: 'print the completion script for bash, zsh or fish',
    examples: `${SHELLS.join('|')}

Prints a script with which the shell completes commands, flags and files:
  echo 'source <(PROGRAM completion bash)' >> ~/.bashrc
  echo 'source <(PROGRAM completion zsh)' >> ~/.zshrc
  PROGRAM completion fish > ~/.config/fish/completions/PROGRAM.fish`,
    takes: SHELLS,
    flags: {},
  },
  version: { summary: 'print the version', examples: '[--json]', flags: JSON_FLAG },
  help: { summary: 'print this help, or the help of a command', examples: '[COMMAND]', flags: {} },
};

/** The program's commands, and those that every program has. */
function allCommands<C>(program: Program<C>): Readonly<Record<string, CommandDescription>> {
  return { ...program.commands, ...OWN };
}

function namesOf<C>(program: Program<C>): string[] {
  return Object.keys(allCommands(program));
}

function commandOf<C>(program: Program<C>, word: string): CommandDescription {
  const commands = allCommands(program);
  const command = Object.hasOwn(commands, word) ? commands[word] : undefined;
  if (command !== undefined) return command;
  const near = nearestName(word, Object.keys(commands));
  throw new UsageError(
    `unknown command "${word}"; ${near === undefined ? `the commands are ${Object.keys(commands).join(', ')}` : `did you mean ${near}?`}`,
  );
}

/**
 * True if the command line asks for this program's help. A flag after `--` does not count: `start -- vllm serve --help`
 * asks vLLM.
 */
function asksForHelp(args: readonly string[], flags: Flags): boolean {
  const rest = restFlag(flags);
  const end = args.findIndex((arg) => arg === '--' || (rest !== undefined && arg.split('=')[0] === `--${rest}`));
  return args.slice(0, end < 0 ? undefined : end).some((arg) => arg === '--help' || arg === '-h');
}

/** @throws UsageError for an unknown command */
export function helpText<C>(program: Program<C>, name: string): string {
  const { examples, flags } = commandOf(program, name);
  const parts = [
    `${program.name} ${name} ${examples.replaceAll('PROGRAM', program.name)}`,
    flagTable(flags),
    program.exitCodes,
  ];
  return parts.filter((part) => part !== '').join('\n\n');
}

/** One line per flag, for a help text. */
export function flagTable(flags: Flags): string {
  const rows = Object.entries(flags).map(([flag, { value, help, default: fallback, otherwise = fallback }]) => {
    const said = otherwise === undefined ? '' : ` [${otherwise}]`;
    return [`--${flag}${value === undefined ? '' : ` ${value}`}`, `${help}${said}`] as const;
  });
  return columns(rows);
}

function overview<C>(program: Program<C>): string {
  const rows = Object.entries(allCommands(program)).map(([name, { summary }]) => [name, summary] as const);
  return `${program.about}\n\n${columns(rows)}\n\n${program.name} COMMAND --help shows more.\n\n${program.exitCodes}`;
}

/** Maximum width of the first column. A longer name only moves the text in its own line. */
const COLUMN_MAX = 28;

function columns(rows: readonly (readonly [string, string])[]): string {
  const width = Math.min(COLUMN_MAX, Math.max(0, ...rows.map(([name]) => name.length)));
  return rows.map(([name, text]) => `  ${name.padEnd(width)}  ${text}`.trimEnd()).join('\n');
}

function version<C>({ name, version }: Program<C>, args: readonly string[]): string {
  return parseLine(args, JSON_FLAG).values.json ? JSON.stringify({ version }) : `${name} ${version}`;
}

function completion<C>(program: Program<C>, args: readonly string[]): string {
  const [shell] = parseLine(args, {}, { words: 1 }).words;
  if (!isShell(shell)) throw new UsageError(`a shell is missing: ${program.name} completion ${SHELLS.join('|')}`);
  return completionScript(shell, program.name, allCommands(program)).trimEnd();
}

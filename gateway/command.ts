/** What a command of `otela-gateway` is: its parser, its help and shell completion read the same table. */
import type { ParseArgsOptionDescriptor } from 'node:util';
import type { Taken } from '../shared/terminal/completion.ts';

export interface Flag extends ParseArgsOptionDescriptor {
  /** Placeholder of the value; a switch has none. */
  value?: string;
  help: string;
  /** What a shell may offer for the value; nothing by default. */
  takes?: Taken;
}

export interface Command {
  /** One line for the list of commands. */
  summary: string;
  /** Forms and examples, for `--help`. */
  examples: string;
  /** What may stand behind the command's name. */
  verbs?: readonly string[];
  /** What stands there where there is no verb. */
  takes?: Taken;
  flags: Readonly<Record<string, Flag>>;
  /** Resolves with the exit code. */
  run(args: string[]): Promise<number>;
}

export const JSON_FLAG = {
  json: { type: 'boolean', default: false, help: 'one JSON object a line, for scripts' },
} as const satisfies Record<string, Flag>;

/** Exit codes that scripts test for. */
export const EXIT_DONE = 0;
/** The gateway said no, or something is in the way. */
export const EXIT_FAILED = 1;
/** The command line cannot mean anything; nothing was done. */
export const EXIT_USAGE = 2;
/** EX_UNAVAILABLE of sysexits.h: no gateway answers there. */
export const EXIT_UNREACHABLE = 69;

/** The command line cannot mean anything: exit code 2. */
export class UsageError extends Error {}

/** Of the operator's making, or the network's: told without a stack. */
export class CommandError extends Error {
  readonly exitCode: number = EXIT_FAILED;
}

export const EXIT_CODES = `Exit codes: ${EXIT_DONE} done, ${EXIT_FAILED} refused by the gateway or failed, ${EXIT_USAGE} wrong use, ${EXIT_UNREACHABLE} no gateway answers.`;

export function helpOf(name: string, { examples, flags }: Command): string {
  const rows = Object.entries(flags).map(([flag, { value, help, default: otherwise }]) => {
    const known = otherwise === undefined || otherwise === false ? '' : ` [${String(otherwise)}]`;
    return [`--${flag}${value === undefined ? '' : ` ${value}`}`, `${help}${known}`] as const;
  });
  const width = Math.max(0, ...rows.map(([flag]) => flag.length));
  const table = rows.map(([flag, help]) => `  ${flag.padEnd(width)}  ${help}`).join('\n');
  return [`otela-gateway ${name}: ${examples}`, table, EXIT_CODES].filter((part) => part !== '').join('\n\n');
}

/** The flags of each command: its parser, its help and its completion read this one table. */
import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';
import type { Taken } from '../../shared/terminal/completion.ts';
import { wrongUse } from '../../shared/terminal/wrong-use.ts';
import { nearest } from '../../shared/text/nearest.ts';
import { ENGINES } from '../config/schema.ts';
import { FactoryError } from '../errors.ts';

interface Flag {
  type: 'string' | 'boolean';
  takes?: Taken;
  help: string;
}

interface Command {
  summary: string;
  /** What stands behind the command's name. */
  argument?: string;
  flags: Readonly<Record<string, Flag>>;
}

const CONFIG = {
  config: { type: 'string', takes: 'file', help: 'factory.toml; this one in the working directory otherwise' },
} as const;
const JSON_FLAG = { json: { type: 'boolean', help: 'as JSON' } } as const;

export const COMMANDS = {
  run: {
    summary: 'submits, watches and ends jobs until it is told to end; its jobs run on',
    flags: {
      ...CONFIG,
      'dry-run': { type: 'boolean', help: 'one round, which says what it would do and does nothing' },
    },
  },
  check: {
    summary: 'reads the file, and asks the clusters whether they would take its jobs',
    flags: { ...CONFIG, offline: { type: 'boolean', help: 'the file alone: no cluster is asked' } },
  },
  status: {
    summary: 'models, jobs, clusters and the last decisions of the factory that runs',
    flags: { ...CONFIG, ...JSON_FLAG },
  },
  explain: {
    summary: 'why a model has the jobs that it has',
    argument: 'MODEL',
    flags: { ...CONFIG, ...JSON_FLAG },
  },
  recipe: {
    summary: 'a recipe for the file: parallelism and context length by the planner',
    argument: 'NAME',
    flags: {
      gpu: { type: 'string', takes: 'word', help: 'kind of GPU, as otela-plan catalogue names it' },
      engine: { type: 'string', takes: ENGINES, help: 'vllm otherwise' },
      context: { type: 'string', takes: 'word', help: 'tokens; as many as fit otherwise, up to 32768' },
    },
  },
  completion: { summary: 'for a shell: source <(otela-factory completion bash)', argument: 'bash|zsh|fish', flags: {} },
  help: { summary: 'this, or more of one command', argument: 'COMMAND', flags: {} },
  version: { summary: 'the version', flags: {} },
} as const satisfies Record<string, Command>;
export type CommandName = keyof typeof COMMANDS;

export const isCommand = (name: string): name is CommandName => Object.hasOwn(COMMANDS, name);
export const commandOf = (name: CommandName): Command => COMMANDS[name];

export interface Given {
  values: Readonly<Record<string, string | boolean | undefined>>;
  argument?: string;
}

/** @throws FactoryError usage, with the nearest flag */
export function readFlags(name: CommandName, argv: readonly string[]): Given {
  const { flags, argument } = commandOf(name);
  const options: ParseArgsOptionsConfig = {
    ...Object.fromEntries(Object.entries(flags).map(([flag, { type }]) => [flag, { type }])),
    help: { type: 'boolean', short: 'h' },
  };
  for (const word of argv) {
    const flag = /^--([^=]+)/.exec(word)?.[1];
    if (flag === undefined || Object.hasOwn(options, flag)) continue;
    const meant = nearest(flag, Object.keys(options));
    throw new FactoryError(
      'usage',
      `${name} has no flag --${flag}${meant === undefined ? '' : `; did you mean --${meant}?`}`,
    );
  }
  let read: { values: Record<string, unknown>; positionals: string[] };
  try {
    read = parseArgs({ args: [...argv], options, strict: true, allowPositionals: true });
  } catch (cause) {
    throw new FactoryError('usage', wrongUse(cause) ?? String(cause), { cause });
  }
  const [first, ...rest] = read.positionals;
  if (rest.length > 0 || (first !== undefined && argument === undefined))
    throw new FactoryError('usage', `${name} does not know what "${rest[0] ?? first}" is for`);
  const values = Object.fromEntries(
    Object.entries(read.values).map(([flag, value]) => [flag, typeof value === 'boolean' ? value : String(value)]),
  );
  return { values, ...(first === undefined ? {} : { argument: first }) };
}

export function configPath({ values }: Given): string {
  return typeof values.config === 'string' ? values.config : 'factory.toml';
}

export function text({ values }: Given, name: string): string | undefined {
  const value = values[name];
  return typeof value === 'string' ? value : undefined;
}

export function help(name?: CommandName): string {
  if (name === undefined) {
    const rows = Object.entries(COMMANDS).map(([one, { summary }]) => `  ${one.padEnd(11)} ${summary}`);
    return `otela-factory: jobs on clusters, as many as requests and batches ask for\n\n${rows.join('\n')}\n\notela-factory COMMAND --help says more. Exit codes: 0 done, 1 check found a fault, 2 wrong use or file, 69 gateway, 70 failed, 75 another factory runs.`;
  }
  const { summary, argument, flags } = commandOf(name);
  const rows = Object.entries(flags).map(
    ([flag, one]) => `  --${`${flag}${one.type === 'string' ? ' …' : ''}`.padEnd(14)} ${one.help}`,
  );
  return [`otela-factory ${name}${argument === undefined ? '' : ` ${argument}`}    ${summary}`, ...rows].join('\n');
}

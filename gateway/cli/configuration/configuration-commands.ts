/** `otela-gateway export`, `diff` and `apply`: the configuration of a gateway as one file. */
import { readFile, stat } from 'node:fs/promises';
import * as z from 'zod';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../../shared/command-line/index.ts';
import { printable } from '../../../shared/terminal/printable.ts';
import { CommandError, EXIT_FAILED } from '../../command-error.ts';
import { type ApiTarget, askGateway, CONNECTION_FLAGS, targetAt } from '../api-client.ts';
import { type Configuration, FILE_MAX_BYTES, formatConfiguration, parseConfiguration } from './configuration-file.ts';
import { exportState, type NamedState } from './export-state.ts';
import { readGatewayState } from './gateway-state.ts';
import { matchFile } from './match-file.ts';
import { type Change, type Names, planChanges } from './plan-changes.ts';
import { planRemovals } from './unmanaged-objects.ts';

const PRUNE = {
  prune: { help: 'also remove objects that the file does not name; users and projects are disabled' },
} as const satisfies Flags;
const DIFF_FLAGS = {
  ...PRUNE,
  check: { help: 'end with exit code 1 if there are differences' },
  ...CONNECTION_FLAGS,
} as const satisfies Flags;
const APPLY_FLAGS = { ...PRUNE, ...CONNECTION_FLAGS } as const satisfies Flags;

export const EXPORT_COMMAND: Command = {
  summary: 'print the configuration of a gateway as one file',
  examples: `> gateway.toml

  otela-gateway export > gateway.toml
  otela-gateway diff gateway.toml

The file has settings, identity providers, providers of nodes, projects with members and limits, users, and the settings, cards and catalogue of models. It has no secret: keys and tokens are not part of it.`,
  flags: CONNECTION_FLAGS,
  run: runExport,
};

export const DIFF_COMMAND: Command = {
  summary: 'compare a configuration file with a gateway',
  examples: `FILE

  otela-gateway diff gateway.toml
  otela-gateway diff gateway.toml --check          in a scheduled job: exit code 1 if there are differences

Prints what \`apply\` would change, and changes nothing.`,
  takes: 'file',
  flags: DIFF_FLAGS,
  run: runDiff,
};

export const APPLY_COMMAND: Command = {
  summary: 'make a gateway equal to a configuration file',
  examples: `FILE

  otela-gateway apply gateway.toml
  otela-gateway apply gateway.toml --prune

A member that an object in the file lacks gets its default. Settings and objects that the file does not name stay as they are, unless --prune is given. A second run changes nothing. If a run fails in the middle, run it again.`,
  takes: 'file',
  flags: APPLY_FLAGS,
  run: runApply,
};

async function runExport(args: readonly string[]): Promise<number> {
  const { values } = parseLine(args, CONNECTION_FLAGS);
  const { configuration, omitted } = exportState(await readGatewayState(targetAt('/admin', values)));
  for (const line of omitted) console.error(printable(`not in the file: ${line}`));
  if (values.json) console.log(JSON.stringify(configuration));
  else console.log(formatConfiguration(configuration));
  return EXIT_DONE;
}

async function runDiff(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, DIFF_FLAGS, { words: 1 });
  const { changes, leftAlone } = await compare(words, targetAt('/admin', values), values.prune);
  for (const change of changes) print(change, values.json);
  if (!values.json) {
    if (changes.length === 0) console.log('no differences');
    reportLeftAlone(leftAlone);
  }
  return values.check && changes.length > 0 ? EXIT_FAILED : EXIT_DONE;
}

async function runApply(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, APPLY_FLAGS, { words: 1 });
  const target = targetAt('/admin', values);
  const { changes, leftAlone, state } = await compare(words, target, values.prune);
  const names = namesOf(state);
  for (const [done, change] of changes.entries()) {
    await perform(change, target, names).catch((cause: unknown) => {
      if (!(cause instanceof CommandError)) throw cause;
      const what = `${done} of ${changes.length} changes were made. ${change.kind} ${change.name}: ${cause.message}`;
      throw new CommandError(printable(what), { cause });
    });
    print(change, values.json);
  }
  if (!values.json) {
    console.log(changes.length === 0 ? 'nothing to change' : `${changes.length} changes made`);
    reportLeftAlone(leftAlone);
  }
  return EXIT_DONE;
}

interface Comparison {
  changes: Change[];
  /** Objects that the file does not name, and that stay as they are. */
  leftAlone: Change[];
  state: NamedState;
}

async function compare([file]: readonly string[], target: ApiTarget, prunes: boolean): Promise<Comparison> {
  if (file === undefined) throw new UsageError('name the configuration file');
  const wanted = await readConfiguration(file);
  const found = await readGatewayState(target);
  const state = matchFile(wanted, found, file);
  const removals = planRemovals(wanted, state, await ownName(target, state));
  const changes = planChanges(wanted, state);
  return prunes
    ? { changes: [...changes, ...removals], leftAlone: [], state }
    : { changes, leftAlone: removals, state };
}

async function readConfiguration(file: string): Promise<Configuration> {
  const failed = (cause: Error) => new CommandError(`cannot read ${file}: ${cause.message}`, { cause });
  const { size } = await stat(file).catch((cause: Error) => Promise.reject(failed(cause)));
  if (size > FILE_MAX_BYTES) throw new CommandError(`${file} is larger than ${FILE_MAX_BYTES / 2 ** 20} MiB`);
  const text = await readFile(file, 'utf8').catch((cause: Error) => Promise.reject(failed(cause)));
  return parseConfiguration(text, file);
}

const meSchema = z.object({ user_id: z.string().nullable() });

/** Returns the name of the user that runs this command; undefined for a key without a user. */
async function ownName(target: ApiTarget, { users }: NamedState): Promise<string | undefined> {
  const { user_id } = meSchema.parse(await askGateway({ ...target, path: '/admin/me' }, 'GET', ''));
  return [...users].find(([, id]) => id === user_id)?.[0];
}

interface GrowingNames extends Names {
  add(kind: 'project' | 'user', name: string, id: string): void;
}

function namesOf(state: NamedState): GrowingNames {
  const ids = { project: new Map(state.projects), user: new Map(state.users) };
  const resolve = (kind: 'project' | 'user', name: string) => ids[kind].get(name) ?? name;
  return {
    project: (name) => resolve('project', name),
    user: (name) => resolve('user', name),
    add: (kind, name, id) => ids[kind].set(name, id),
  };
}

const createdSchema = z.object({ id: z.string() });

async function perform(change: Change, target: ApiTarget, names: GrowingNames): Promise<void> {
  const { verb, kind, name } = change;
  let isFirst = true;
  for (const { method, path, body } of change.requests(names)) {
    const answer = await askGateway({ ...target, path }, method, '', body);
    if (isFirst && verb === 'create' && (kind === 'project' || kind === 'user'))
      names.add(kind, name, createdSchema.parse(answer).id);
    isFirst = false;
  }
}

const SIGNS = { create: '+', update: '~', remove: '-' } as const;

function print({ verb, kind, name, fields }: Change, json: boolean): void {
  if (json) {
    console.log(JSON.stringify({ verb, kind, name, fields }));
    return;
  }
  const text = (value: unknown) => (value === undefined || value === null ? '–' : JSON.stringify(value));
  const changed = fields.map(({ field, before, after }) => {
    const label = field === name ? '' : `${field}: `;
    return verb === 'create' ? `${label}${text(after)}` : `${label}${text(before)} → ${text(after)}`;
  });
  console.log(printable(`${SIGNS[verb]} ${kind} ${name}  ${changed.join(', ')}`.trimEnd()));
}

function reportLeftAlone(removals: readonly Change[]): void {
  if (removals.length === 0) return;
  const counts = [...Map.groupBy(removals, ({ kind }) => kind)].map(([kind, all]) => `${all.length} × ${kind}`);
  console.error(`not in the file and unchanged: ${counts.join(', ')}`);
}

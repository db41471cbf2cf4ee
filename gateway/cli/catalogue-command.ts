/**
 * `otela-gateway catalogue …`: a model's owner, its access list, whether it must always run, and when it is retired.
 */
import * as z from 'zod';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { askGateway, CONNECTION_FLAGS, printAnswer, printList, targetAt, wasDeleted } from './api-client.ts';

const entrySchema = z.object({
  id: z.string(),
  owner_id: z.string().nullable(),
  access: z.array(z.string()).nullable(),
  always_on: z.boolean(),
  deprecated_at: z.string().nullable(),
  sunset_at: z.string().nullable(),
  successor: z.string().nullable(),
});

const OPTIONS = {
  owner: { value: 'USER|none', help: 'set: user responsible for the model' },
  access: { value: 'ID,…|any', help: 'set: keys, users, projects and group:NAME that may use it; "": only operators' },
  'always-on': { value: 'yes|no', takes: ['yes', 'no'], help: 'set: raise an alert if no node serves the model' },
  deprecated: { value: 'DATE|none', help: 'set: from this date, responses announce the deprecation' },
  sunset: { value: 'DATE|none', help: 'set: from this date, requests get 404' },
  successor: { value: 'MODEL|none', help: 'set: model that replaces this model' },
} as const satisfies Flags;
const FLAGS = { ...OPTIONS, ...CONNECTION_FLAGS } as const satisfies Flags;
const USAGE = 'list | set MODEL … | remove MODEL';

export const CATALOGUE_COMMAND: Command = {
  summary: 'set the owner, access, alerts and end date of models',
  examples: `${USAGE}

  otela-gateway catalogue list
  otela-gateway catalogue set org/name --owner user_3a… --access proj_77…,group:beta
  otela-gateway catalogue set org/name --always-on yes
  otela-gateway catalogue set org/old --deprecated 2027-01-31 --sunset 2027-06-30 --successor org/new
  otela-gateway catalogue remove org/name             deletes its entry: every user may use it again

set changes only what is named. Dates are UTC.`,
  verbs: ['list', 'set', 'remove'],
  flags: FLAGS,
  run: catalogueCommand,
};

async function catalogueCommand(args: readonly string[]): Promise<number> {
  const { values, given, words } = parseLine(args, FLAGS, { words: 2 });
  const [verb, model] = words;
  const target = targetAt('/admin/catalogue', values);
  const over = verb === 'set' || verb === undefined ? undefined : [...given.keys()].find((flag) => flag in OPTIONS);
  if (over !== undefined) throw new UsageError(`otela-gateway catalogue ${verb} takes no --${over}`);
  const head = ['model', 'owner', 'access', 'always on', 'deprecated (UTC)', 'sunset (UTC)', 'successor'];
  if (verb === 'list' && model === undefined) return printList(target, { head, row });
  if (model === undefined) throw new UsageError(`usage: otela-gateway catalogue ${USAGE}`);
  const one = `/${encodeURIComponent(model)}`;
  if (verb === 'set') {
    const body = bodyOf(values);
    if (Object.keys(body).length === 0)
      throw new UsageError('nothing to set; otela-gateway help catalogue lists the flags');
    return printAnswer(target, row, await askGateway(target, 'PATCH', one, body));
  }
  if (verb !== 'remove') throw new UsageError(`usage: otela-gateway catalogue ${USAGE}`);
  const deleted = wasDeleted(await askGateway(target, 'DELETE', one));
  if (target.json) console.log(JSON.stringify({ id: model, deleted }));
  else console.log(deleted ? `${model}  removed` : `the catalogue has no entry for ${model}`);
  return EXIT_DONE;
}

type Values = Readonly<Record<keyof typeof OPTIONS, string | undefined>>;

function bodyOf(values: Values): Record<string, unknown> {
  const { owner, access, deprecated, sunset, successor, 'always-on': alwaysOn } = values;
  if (alwaysOn !== undefined && alwaysOn !== 'yes' && alwaysOn !== 'no')
    throw new UsageError('--always-on must be yes or no');
  return {
    ...(owner !== undefined && { owner_id: orNone(owner) }),
    ...(access !== undefined && { access: listOf(access) }),
    ...(alwaysOn !== undefined && { always_on: alwaysOn === 'yes' }),
    ...(deprecated !== undefined && { deprecated_at: dateOf('deprecated', deprecated) }),
    ...(sunset !== undefined && { sunset_at: dateOf('sunset', sunset) }),
    ...(successor !== undefined && { successor: orNone(successor) }),
  };
}

function orNone(text: string): string | null {
  return text === 'none' || text === '' ? null : text;
}

function listOf(text: string): string[] | null {
  if (text === 'any') return null;
  const names = text.split(',').map((one) => one.trim());
  return names.filter((one) => one !== '');
}

/** Converts a date to RFC 3339. @throws UsageError for other text, because Date.parse would read 45 as a year */
function dateOf(flag: string, text: string): string | null {
  if (text === 'none') return null;
  const at = /^\d{4}-\d\d-\d\d/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(at)) throw new UsageError(`--${flag} must be a date such as 2027-06-30, or "none"`);
  return new Date(at).toISOString();
}

function row(value: unknown): string[] {
  const { id, owner_id, access, always_on, deprecated_at, sunset_at, successor } = entrySchema.parse(value);
  const who = access === null ? 'any' : access.join(',') || 'operators';
  const day = (at: string | null) => at?.slice(0, 10) ?? '–';
  return [id, owner_id ?? '–', who, always_on ? 'yes' : 'no', day(deprecated_at), day(sunset_at), successor ?? '–'];
}

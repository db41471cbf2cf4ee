/**
 * Runs the commands of the resources in resources.ts, such as `keys`, `users` and `tokens`. They call the admin REST
 * API.
 */
import * as z from 'zod';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import {
  type ApiTarget,
  askGateway,
  CONNECTION_FLAGS,
  type ListRow,
  printAnswer,
  printList,
  targetAt,
} from './api-client.ts';
import { installLine, publicUrl } from './install-line.ts';
import type { FieldKind, Resource } from './resources.ts';

const DAY_S = 86_400;
const UNIT_S: Readonly<Record<string, number>> = { m: 60, h: 3_600, d: DAY_S };

/** Builds the command of one resource in the table. */
export function buildResourceCommand(name: string, resource: Resource): Command {
  const { summary, examples, verbs } = resource;
  const overlap = { value: '24h', help: 'rotate: the old key stays valid for this long' };
  const flags: Flags = { ...resource.flags, ...(verbs.includes('rotate') ? { overlap } : {}), ...CONNECTION_FLAGS };
  return { summary, examples, verbs, flags, run: (args) => resourceCommand(name, resource, flags, args) };
}

/** @returns the exit code */
async function resourceCommand(
  name: string,
  resource: Resource,
  flags: Flags,
  args: readonly string[],
): Promise<number> {
  const { values, given: flagsGiven, words } = parseLine(args, { ...flags, ...CONNECTION_FLAGS }, { words: 2 });
  const { verbs, path, secret, first } = resource;
  const row = rowOf(resource.shown);
  const target = targetAt(path, values);
  const [given, id] = words;
  const verb = verbs.find((one) => one === given);
  if (verb !== undefined) refusePassedOver(name, verb, resource, [...flagsGiven.keys()]);
  const named = id !== undefined;
  const one = `/${encodeURIComponent(id ?? '')}`;
  if (verb === 'list' && id === undefined)
    return printList(target, { head: ['id', ...resource.shown.map(columnOf), 'state', 'created', 'name'], row });
  if (verb === 'show' && named)
    return printAnswer({ ...target, json: true }, row, await askGateway(target, 'GET', one));
  if (verb === 'delete' && named) return erase(target, one);
  if (verb === 'revoke' && named) return printAnswer(target, row, await askGateway(target, 'DELETE', one));
  if (verb === 'create' && (first === undefined ? id === undefined : named)) {
    const made = await askGateway(target, 'POST', '', {
      ...bodyFromFlags(resource, values),
      ...(first === undefined ? {} : { [first]: id }),
    });
    if (secret === undefined) return printAnswer(target, row, made);
    const code = shownOnce(target.json, made, row, secret);
    if (resource.installs && !target.json) await printInstallLine(target, made);
    return code;
  }
  if (verb === 'set' && named) {
    const body = bodyFromFlags(resource, values);
    const before = 'limits' in body ? limitsFromAnswer(await askGateway(target, 'GET', one)) : {};
    return printAnswer(target, row, await askGateway(target, 'PATCH', one, mergeLimits(body, before)));
  }
  if (verb === 'rotate' && named) {
    const [overlap] = flagsGiven.get('overlap') ?? [];
    const body = overlap === undefined ? {} : { overlap_seconds: seconds(overlap) };
    return shownOnce(target.json, await askGateway(target, 'POST', `${one}/rotate`, body), row, 'key');
  }
  throw new UsageError(`usage: otela-gateway ${name} ${verbs.join('|')} …`);
}

/**
 * Refuses flags that the verb would ignore: `keys list --project P`, for example, would show all keys.
 * @throws UsageError
 */
function refusePassedOver(name: string, verb: string, { flags }: Resource, given: readonly string[]): void {
  const taken = verb === 'create' || verb === 'set' ? Object.keys(flags) : verb === 'rotate' ? ['overlap'] : [];
  const over = given.find((flag) => !(flag in CONNECTION_FLAGS) && !taken.includes(flag));
  if (over !== undefined) throw new UsageError(`otela-gateway ${name} ${verb} takes no --${over}`);
}

/** Deletes a user's records day by day until nothing is left. */
async function erase(target: ReturnType<typeof targetAt>, one: string): Promise<number> {
  const step = z.object({ id: z.string(), days_left: z.number() });
  for (;;) {
    const { id, days_left } = step.parse(await askGateway(target, 'DELETE', one));
    if (target.json) console.log(JSON.stringify({ id, days_left }));
    else console.log(days_left === 0 ? `${id}  deleted` : `${id}  records of ${days_left} days remain`);
    if (days_left === 0) return EXIT_DONE;
  }
}

/** Prints only the secret to stdout, so that `> token` creates a token file. */
function shownOnce(json: boolean, answer: unknown, row: ListRow, secret: 'key' | 'token'): number {
  if (json) console.log(JSON.stringify(answer));
  else {
    console.error(`${row(answer).join('  ')}\nShown only once:`);
    console.log(z.record(z.string(), z.unknown()).parse(answer)[secret]);
  }
  return EXIT_DONE;
}

/**
 * Prints to stderr how to install an agent. The line has the token only if stdout is a terminal, which shows the token
 * anyway: otherwise the token goes to a file.
 */
async function printInstallLine(target: ApiTarget, made: unknown): Promise<void> {
  const { token } = z.object({ token: z.string() }).parse(made);
  const shown = process.stdout.isTTY ? token : '"$(cat FILE)"';
  console.error(`On the provider's machine:\n  ${installLine(await publicUrl(target), shown)}`);
}

/** Returns the members of a request body that flags set. */
export function bodyFromFlags(
  { flags }: Pick<Resource, 'flags'>,
  values: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  const limits: Record<string, number | undefined> = {};
  for (const [flag, { member, kind }] of Object.entries(flags)) {
    const given = values[flag];
    if (typeof given !== 'string') continue;
    const value = parsed(flag, kind, given);
    const inner = /^limits\.(.+)$/.exec(member)?.[1];
    if (inner === undefined) body[member] = value;
    else limits[inner] = typeof value === 'number' ? value : undefined;
  }
  return Object.keys(limits).length === 0 ? body : { ...body, limits };
}

function parsed(flag: string, kind: FieldKind, given: string): unknown {
  switch (kind) {
    case 'text':
      return given === '' ? null : given;
    case 'list':
      if (given === 'any') return null;
      return given
        .split(',')
        .map((one) => one.trim())
        .filter((one) => one !== '');
    case 'count':
      if (given === 'none') return null;
      if (/^\d+$/.test(given)) return Number(given);
      throw new UsageError(`--${flag} must be a whole number or "none"`);
    case 'switch':
      if (given === 'yes' || given === 'no') return given === 'yes';
      throw new UsageError(`--${flag} must be yes or no`);
    case 'expiry':
      if (given === 'never') return null;
      return endOf(flag, given);
  }
}

/**
 * Converts `90d` or `2026-12-31` to RFC 3339.
 * @throws UsageError for other text, because Date.parse would read 45 as a year, while the user meant days
 */
function endOf(flag: string, given: string): string {
  const inTime = /^\d{1,6}[mhd]$/.test(given) ? Date.now() + seconds(given) * 1000 : Number.NaN;
  const at = /^\d{4}-\d\d-\d\d/.test(given) ? Date.parse(given) : inTime;
  if (!Number.isNaN(at)) return new Date(at).toISOString();
  throw new UsageError(`--${flag} must be a date such as 2026-12-31, a time from now such as 90d, or "never"`);
}

function seconds(text: string): number {
  const [, count = '', unit = ''] = /^(\d+)([mhd])$/.exec(text) ?? [];
  if (count === '') throw new UsageError(`"${text}" is not a duration such as 30m, 24h or 7d`);
  return Number(count) * (UNIT_S[unit] ?? 0);
}

export function limitsFromAnswer(answer: unknown): Record<string, unknown> {
  return z.object({ limits: z.record(z.string(), z.unknown()).nullish() }).parse(answer).limits ?? {};
}

/** Adds the existing limits that no flag names, because the REST API replaces all of them. */
export function mergeLimits(body: Record<string, unknown>, before: Record<string, unknown>): Record<string, unknown> {
  const given = body.limits;
  if (typeof given !== 'object' || given === null) return body;
  return { ...body, limits: { ...before, ...given } };
}

const common = z.object({ id: z.string(), name: z.string(), created_at: z.string() });
const ended = z.object({
  revoked_at: z.string().nullish(),
  disabled_at: z.string().nullish(),
  deleted_at: z.string().nullish(),
  expires_at: z.string().nullish(),
});

/** Returns the column name of a member. */
const columnOf = (member: string) => member.replaceAll('_', ' ');

function rowOf(more: readonly string[]): ListRow {
  return (value) => {
    const { id, name, created_at } = common.parse(value);
    const other = z.looseObject({}).parse(value);
    return [id, ...more.map((member) => String(other[member] ?? '–')), stateOf(value), created_at, name];
  };
}

function stateOf(value: unknown): string {
  const { revoked_at, disabled_at, deleted_at, expires_at } = ended.parse(value);
  if (revoked_at != null) return 'revoked';
  if (disabled_at != null) return 'disabled';
  if (deleted_at != null) return 'deleted';
  return expires_at == null ? 'valid' : `until ${expires_at}`;
}

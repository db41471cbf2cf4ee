/** `otela-gateway keys|users|projects|providers|tokens`: what each may be asked for, and how it is shown in a line. */
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { ask, CONNECTION, doorTo, list, print, type Row, UsageError } from './client.ts';

/** How a flag becomes a member of the body. */
type Kind = 'text' | 'list' | 'count' | 'switch' | 'expiry';

interface Thing {
  path: string;
  /** Flags by the member they set; `limits.` puts it inside. */
  flags: Readonly<Record<string, { member: string; kind: Kind }>>;
  verbs: readonly ('create' | 'list' | 'show' | 'set' | 'revoke' | 'rotate' | 'delete')[];
  /** The member that is shown only once. */
  secret?: 'key' | 'token';
  /** Of `create`, without a flag. */
  first?: string;
  row: Row;
}

const DAY_S = 86_400;
const UNIT_S: Readonly<Record<string, number>> = { m: 60, h: 3_600, d: DAY_S };

const RESTRICTIONS: Thing['flags'] = {
  models: { member: 'models', kind: 'list' },
  endpoints: { member: 'endpoints', kind: 'list' },
  'trusted-providers': { member: 'trusted_providers', kind: 'list' },
  regions: { member: 'regions', kind: 'list' },
  tiers: { member: 'tiers', kind: 'list' },
  'no-track': { member: 'no_track', kind: 'switch' },
  resume: { member: 'resume', kind: 'switch' },
  rpm: { member: 'limits.requests_per_minute', kind: 'count' },
  tpm: { member: 'limits.tokens_per_minute', kind: 'count' },
  concurrent: { member: 'limits.concurrent_requests', kind: 'count' },
  reasoning: { member: 'limits.reasoning_tokens_per_request', kind: 'count' },
  'monthly-tokens': { member: 'limits.tokens_per_month', kind: 'count' },
};
const text = (member: string) => ({ member, kind: 'text' }) as const;

const common = z.object({ id: z.string(), name: z.string(), created_at: z.string() });
const ended = z.object({
  revoked_at: z.string().nullish(),
  disabled_at: z.string().nullish(),
  deleted_at: z.string().nullish(),
  expires_at: z.string().nullish(),
});

function row(more: readonly string[]): Row {
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

const CHANGED = ['create', 'list', 'show', 'set'] as const;

export const THINGS: Readonly<Record<string, Thing>> = {
  keys: {
    path: '/admin/keys',
    verbs: [...CHANGED, 'rotate', 'revoke'],
    secret: 'key',
    flags: {
      ...RESTRICTIONS,
      name: text('name'),
      role: text('role'),
      provider: text('provider'),
      user: text('user_id'),
      project: text('project_id'),
      scopes: { member: 'scopes', kind: 'list' },
      expires: { member: 'expires_at', kind: 'expiry' },
    },
    row: row(['role', 'prefix']),
  },
  users: {
    path: '/admin/users',
    verbs: [...CHANGED, 'delete'],
    flags: {
      name: text('name'),
      email: text('email'),
      role: text('role'),
      provider: text('provider'),
      project: text('project_id'),
      issuer: text('issuer'),
      subject: text('subject'),
      disabled: { member: 'disabled', kind: 'switch' },
    },
    row: row(['role', 'provider', 'project_id']),
  },
  projects: {
    path: '/admin/projects',
    verbs: CHANGED,
    flags: {
      ...RESTRICTIONS,
      name: text('name'),
      trace: { member: 'trace', kind: 'switch' },
      'trace-prefixes': { member: 'trace_prefixes', kind: 'switch' },
      disabled: { member: 'disabled', kind: 'switch' },
    },
    row: row(['trace']),
  },
  providers: {
    path: '/admin/providers',
    verbs: [...CHANGED, 'revoke'],
    first: 'id',
    flags: { name: text('name'), default: { member: 'trusted_by_default', kind: 'switch' } },
    row: row(['trusted_by_default']),
  },
  tokens: {
    path: '/admin/join-tokens',
    verbs: ['create', 'list', 'show', 'revoke'],
    secret: 'token',
    flags: {
      name: text('name'),
      provider: text('provider'),
      cluster: text('cluster'),
      'max-nodes': { member: 'max_nodes', kind: 'count' },
      expires: { member: 'expires_at', kind: 'expiry' },
    },
    row: row(['provider', 'cluster', 'nodes', 'max_nodes', 'prefix']),
  },
};

export const THINGS_USAGE = `otela-gateway keys create --name NAME [--role consumer|provider|operator] [--user ID] [--project ID] [--expires 90d] [--scopes S,…] [WHAT IT MAY]
otela-gateway keys list | show ID | set ID … | rotate ID [--overlap 24h] | revoke ID
otela-gateway projects create --name NAME [--trace yes] [--trace-prefixes yes] [WHAT ITS KEYS MAY] | list | show ID | set ID … [--disabled yes]
    WHAT: --models M,… --endpoints E,… --trusted-providers P,… --regions R,… --tiers T,… ("any": no list)
          --rpm N --tpm N --concurrent N --monthly-tokens N --reasoning N ("none": no limit) --no-track yes|no
otela-gateway users create --name NAME [--role R] [--provider P] [--project ID] | list | show ID | set ID … [--disabled yes] | delete ID
otela-gateway providers create ID [--name NAME] [--default yes|no] | list | show ID | set ID … | revoke ID
otela-gateway tokens create --provider P [--cluster C] [--name NAME] [--max-nodes N] [--expires 30d] | list | show ID | revoke ID`;

/** @returns the exit code */
export async function thingCommand(name: string, thing: Thing, args: string[]): Promise<number> {
  const flags = Object.fromEntries(Object.keys(thing.flags).map((flag) => [flag, { type: 'string' as const }]));
  const options = { ...CONNECTION, overlap: { type: 'string' as const }, ...flags };
  const line = parseArgs({ args, options, allowPositionals: true });
  const values: Readonly<Record<string, string | boolean | undefined>> = line.values;
  const { verbs, path, row, secret, first } = thing;
  const door = doorTo(path, line.values);
  const [given, id, ...rest] = line.positionals;
  const verb = verbs.find((one) => one === given);
  const named = id !== undefined && rest.length === 0;
  const one = `/${encodeURIComponent(id ?? '')}`;
  if (verb === 'list' && id === undefined) return list(door, { row });
  if (verb === 'show' && named) return print({ ...door, json: true }, row, await ask(door, 'GET', one));
  if (verb === 'delete' && named) return erase(door, one);
  if (verb === 'revoke' && named) return print(door, row, await ask(door, 'DELETE', one));
  if (verb === 'create' && (first === undefined ? id === undefined : named)) {
    const made = await ask(door, 'POST', '', {
      ...bodyOf(thing, values),
      ...(first === undefined ? {} : { [first]: id }),
    });
    return secret === undefined ? print(door, row, made) : shownOnce(door.json, made, row, secret);
  }
  if (verb === 'set' && named) {
    const body = bodyOf(thing, values);
    const before = 'limits' in body ? limitsOf(await ask(door, 'GET', one)) : {};
    return print(door, row, await ask(door, 'PATCH', one, merged(body, before)));
  }
  if (verb === 'rotate' && named) {
    const overlap = values.overlap === undefined ? {} : { overlap_seconds: seconds(String(values.overlap)) };
    return shownOnce(door.json, await ask(door, 'POST', `${one}/rotate`, overlap), row, 'key');
  }
  throw new UsageError(`usage: otela-gateway ${name} ${verbs.join('|')} …; see otela-gateway help`);
}

/** Day by day, until nothing is left. */
async function erase(door: ReturnType<typeof doorTo>, one: string): Promise<number> {
  const step = z.object({ id: z.string(), days_left: z.number() });
  for (;;) {
    const { id, days_left } = step.parse(await ask(door, 'DELETE', one));
    console.log(days_left === 0 ? `${id}  deleted` : `${id}  ${days_left} days of records left`);
    if (days_left === 0) return 0;
  }
}

/** The secret alone goes to stdout, so that `> token` makes a token file. */
function shownOnce(json: boolean, answer: unknown, row: Row, secret: 'key' | 'token'): number {
  if (json) console.log(JSON.stringify(answer));
  else {
    console.error(`${row(answer).join('  ')}\nShown this once:`);
    console.log(z.record(z.string(), z.unknown()).parse(answer)[secret]);
  }
  return 0;
}

function bodyOf({ flags }: Thing, values: Readonly<Record<string, unknown>>): Record<string, unknown> {
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

function parsed(flag: string, kind: Kind, given: string): unknown {
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
      throw new UsageError(`--${flag}: a whole number or "none"`);
    case 'switch':
      if (given === 'yes' || given === 'no') return given === 'yes';
      throw new UsageError(`--${flag}: yes or no`);
    case 'expiry':
      if (given === 'never') return null;
      if (/^\d+[mhd]$/.test(given)) return new Date(Date.now() + seconds(given) * 1000).toISOString();
      if (!Number.isNaN(Date.parse(given))) return new Date(given).toISOString();
      throw new UsageError(`--${flag}: a date, a time from now as in 90d, or "never"`);
  }
}

function seconds(text: string): number {
  const [, count = '', unit = ''] = /^(\d+)([mhd])$/.exec(text) ?? [];
  if (count === '') throw new UsageError(`${text}: as in 30m, 24h or 7d`);
  return Number(count) * (UNIT_S[unit] ?? 0);
}

function limitsOf(answer: unknown): Record<string, unknown> {
  return z.object({ limits: z.record(z.string(), z.unknown()).nullish() }).parse(answer).limits ?? {};
}

/** Limits that no flag names stay: the REST takes them as a whole. */
function merged(body: Record<string, unknown>, before: Record<string, unknown>): Record<string, unknown> {
  const given = body.limits;
  if (typeof given !== 'object' || given === null) return body;
  return { ...body, limits: { ...before, ...given } };
}

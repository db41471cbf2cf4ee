/** `otela-gateway keys|tokens …`: the admin REST, for a shell. */
import { readFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import * as z from 'zod';

export const CLIENT_USAGE = `otela-gateway keys create --name NAME [--role operator]
otela-gateway keys list | keys revoke ID
otela-gateway tokens create --provider P [--cluster C] [--name NAME]
otela-gateway tokens list | tokens revoke ID
    [--url http://127.0.0.1:8787] [--key-file ./data/admin.key] [--json]`;

/** The gateway said no, or was not there: told without a stack. */
export class ClientError extends Error {}

const ANSWER_MS = 15_000;

export const CONNECTION = {
  url: { type: 'string', default: 'http://127.0.0.1:8787' },
  'key-file': { type: 'string', default: './data/admin.key' },
  json: { type: 'boolean', default: false },
} as const;

const revocable = z.object({
  id: z.string(),
  name: z.string(),
  prefix: z.string(),
  created_at: z.string(),
  revoked_at: z.string().nullable(),
});
const keySchema = revocable.extend({ role: z.string() });
const tokenSchema = revocable.extend({ provider: z.string(), cluster: z.string().nullable() });

export async function keysCommand(args: string[]): Promise<number> {
  const options = { ...CONNECTION, name: { type: 'string' }, role: { type: 'string', default: 'consumer' } } as const;
  const { values, positionals } = parseArgs({ args, options, allowPositionals: true });
  const door: Door = { path: '/admin/keys', url: values.url, keyFile: values['key-file'], json: values.json };
  return command(door, positionals, {
    body: { name: values.name, role: values.role },
    secret: 'key',
    row: (value) => {
      const key = keySchema.parse(value);
      return [
        key.id,
        key.role,
        `${key.prefix}…`,
        key.revoked_at === null ? 'valid' : 'revoked',
        key.created_at,
        key.name,
      ];
    },
  });
}

export async function tokensCommand(args: string[]): Promise<number> {
  const options = {
    ...CONNECTION,
    name: { type: 'string' },
    provider: { type: 'string' },
    cluster: { type: 'string' },
  } as const;
  const { values, positionals } = parseArgs({ args, options, allowPositionals: true });
  const door: Door = { path: '/admin/join-tokens', url: values.url, keyFile: values['key-file'], json: values.json };
  return command(door, positionals, {
    body: { name: values.name, provider: values.provider, cluster: values.cluster },
    secret: 'token',
    row: (value) => {
      const token = tokenSchema.parse(value);
      const { id, provider, cluster, prefix, revoked_at, created_at, name } = token;
      return [id, provider, cluster ?? '*', `${prefix}…`, revoked_at === null ? 'valid' : 'revoked', created_at, name];
    },
  });
}

export interface Door {
  path: string;
  url: string;
  keyFile: string;
  json: boolean;
}

interface Thing {
  body: Record<string, string | undefined>;
  /** The member that is shown only once. */
  secret: 'key' | 'token';
  row(value: unknown): string[];
}

async function command(door: Door, [verb, id, ...rest]: string[], thing: Thing): Promise<number> {
  if (verb === 'create' && id === undefined) return create(door, thing);
  if (verb === 'list' && id === undefined) return list(door, thing);
  if (verb === 'revoke' && id !== undefined && rest.length === 0) {
    const answer = await ask(door, 'DELETE', `/${encodeURIComponent(id)}`);
    console.log(door.json ? JSON.stringify(answer) : thing.row(answer).join('  '));
    return 0;
  }
  console.error(CLIENT_USAGE);
  return 2;
}

/** The secret alone goes to stdout, so that `> token` makes a token file. */
async function create(door: Door, { body, secret, row }: Thing): Promise<number> {
  const answer = await ask(door, 'POST', '', body);
  if (door.json) {
    console.log(JSON.stringify(answer));
    return 0;
  }
  console.error(`${row(answer).join('  ')}\nShown this once:`);
  console.log(z.record(z.string(), z.unknown()).parse(answer)[secret]);
  return 0;
}

export async function list(door: Door, { row }: Pick<Thing, 'row'>): Promise<number> {
  const page = z.object({ data: z.array(z.looseObject({ id: z.string() })), has_more: z.boolean() });
  for (let after = '', more = true; more; ) {
    const { data, has_more } = page.parse(await ask(door, 'GET', after));
    for (const one of data) console.log(door.json ? JSON.stringify(one) : row(one).join('  '));
    after = `?after=${data.at(-1)?.id}`;
    more = has_more && data.length > 0;
  }
  return 0;
}

const errorSchema = z.object({ error: z.object({ message: z.string() }) });

export async function ask(
  door: Door,
  method: string,
  path: string,
  body?: Record<string, string | undefined>,
): Promise<unknown> {
  const key = (await readFile(door.keyFile, 'utf8').catch(() => undefined))?.trim();
  if (key === undefined) throw new ClientError(`cannot read ${door.keyFile}; name the operator's key with --key-file`);
  const url = new URL(door.url.replace(/\/+$/, '') + door.path + path);
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const signal = AbortSignal.timeout(ANSWER_MS);
  const init = { method, headers, signal, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
  const response = await fetch(url, init).catch((cause: unknown) => {
    const reason = cause instanceof Error && cause.cause instanceof Error ? cause.cause.message : String(cause);
    throw new ClientError(`no gateway answers at ${url.origin}: ${reason}`, { cause });
  });
  const text = await response.text();
  const json = parseJson(text);
  if (response.ok && json !== undefined) return json;
  const said = errorSchema.safeParse(json);
  throw new ClientError(said.success ? said.data.error.message : `${response.status} ${text.slice(0, 500)}`);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Settings of a gateway: its environment, and the members of `PATCH /admin/settings` with bounds and defaults from
 * their schema.
 */
import * as z from 'zod';
import { SERVE_SETTINGS as ENVIRONMENT } from '../../gateway/hosts/node/serve/serve.ts';
import { openApiText } from '../contract.ts';
import { code, table } from './table.ts';

/** Meaning and default of each variable that `otela-gateway serve` reads. */
const VARIABLES: Readonly<Record<string, readonly [meaning: string, otherwise: string]>> = {
  BODY_LIMIT_BYTES: ['largest body that is looked into; larger ones need `x-otela-model`', '34603008'],
  BODY_BUDGET_BYTES: ['memory for bodies above 1 MiB that are kept for a retry', '50331648'],
  BODY_STALL_MS: ['a body that brings less than 500 bytes a second for so long gets 408', '30000'],
  BODY_UPLOADS_BYTES: [
    'memory for bodies on their way in, up to 1 MiB of each; above it the slowest get 408',
    '134217728; Cloudflare 33554432',
  ],
  REGISTRY_ACCESS: ['`open`: `/v1/registry` needs no key', 'any valid key'],
  MESH_RELAY: ['`off`: agents that cannot reach each other do not meet at this gateway', 'on; not on Cloudflare'],
  DEFAULT_TRUST: [
    '`marked`: a request without a list of providers goes to marked ones only; `admitted`: to all. `default_trust` wins over it',
    'admitted',
  ],
  OIDC_CLIENT_SECRETS: ['secret: JSON of client secrets by issuer', ''],
  USAGE_KEPT_DAYS: ['days that records of use are kept', '400'],
  USAGE_HELD_RECORDS: ['records of use, 1 KiB each, that wait in memory while the storage cannot be written', '50000'],
  REQUIRE_SIGNED_AGENT: [
    '`on`: agents prove to be of a signed release; `off`: they need a join token only',
    'off; on in a release',
  ],
  RELEASE_KEYS: ['public keys of those releases, base64url, between commas', "the release's own"],
  OLDEST_AGENT: ['with REQUIRE_SIGNED_AGENT: the oldest release admitted', '0.1.0'],
  OTELA_METRICS_TOKEN: ['secret: the bearer token that reads `/metrics` and nothing else', "operators' keys only"],
  REQUEST_LOG: ['requests that leave a line in the log: `error`, `all`, `off`', 'error'],
};

/** Only on Cloudflare: a self-hosted gateway reads `admin.key` and `issuer/` instead. */
const CLOUDFLARE = [
  ['ADMIN_KEY_SHA256', "secret: hex SHA-256 of the first operator's key"],
  ['OTELA_GATEWAY_KEY', 'secret: the key that admits nodes'],
  ['OTELA_GATEWAY_CERT', "the root key's certificate of it"],
  ['OTELA_RETIRED_KEYS', 'former keys, `KEY:CERT` between commas'],
  ['OTELA_REVOCATIONS', 'what the root key revoked, between commas'],
] as const;

/** Meaning of each member, with defaults that its schema cannot express. */
const MEMBERS: Readonly<Record<string, string>> = {
  default_trust: 'providers of a request that names none; default: DEFAULT_TRUST',
  public_url: 'where browsers reach this gateway: identity providers send them back there',
  'oidc[].issuer': 'an OpenID Connect provider',
  'oidc[].name': 'as the login page shows it',
  'oidc[].client_id': 'of this gateway at that provider',
  'oidc[].audience': 'access tokens with this `aud` are as good as keys; null: none are',
  'oidc[].scope': 'asked for at login',
  'oidc[].admits': '`known`: users that an operator made; `mapped`: a claim fits `roles` or `projects`; `everybody`',
  'oidc[].role_claim': 'the claim that decides the role at each login; null: operators do',
  'oidc[].roles': 'from values of that claim to role and provider; the highest role counts',
  'oidc[].project_claim': 'the claim that decides the project',
  'oidc[].projects': 'from values of that claim to project ids: the first that fits is the person’s own',
  'oidc[].leads': 'from values of that claim to ids of projects that the person leads',
  'oidc[].lapse_days': 'keys of a person rest when the provider has not vouched for them for so many days; null: never',
  'oidc[].group_claim': 'the claim whose values are groups of access lists',
  'oidc[].groups': 'from values of that claim to names of groups',
  'queue.unary_ms': 'longest wait for a free node, unary; 0: 503 at once',
  'queue.stream_ms': 'longest wait for a free node, stream; a model whose last node left longer ago is not waited for',
  'queue.places': 'requests that may wait for one model',
  'queue.weights': 'turns by project id, relative to the 1 of all others',
  'user_limits.requests_per_minute':
    'what all keys of a person share who has no limits of their own; default: no limit',
  'user_limits.tokens_per_minute': 'the same of tokens',
  'user_limits.concurrent_requests': 'the same of requests at once',
  'user_limits.tokens_per_month': 'the same of tokens a calendar month, UTC',
  'user_limits.gpu_seconds_per_month': 'the same of GPU seconds',
  'user_limits.reasoning_tokens_per_request': 'reasoning tokens of one answer',
  'user_limits.models': 'limits of one model, by its name; `*`: of each that is not named',
  'files.count':
    'files, unfinished uploads and parts of these that one project may have, or a person or key without one',
  'files.bytes': 'bytes of all of them, as uploads declare them',
  'files.open_batches': 'batches that are not over, the same',
  'routing.policy': 'of models that have none of their own; default: least-load, prefix-affinity for conversations',
  'routing.timeouts.standard.first_byte_ms': 'until an answer begins; default 900000',
  'routing.timeouts.standard.stall_ms': 'between two pieces of it; default 120000',
  'routing.timeouts.reasoning.first_byte_ms': 'the same of models that think aloud; default 1800000',
  'routing.timeouts.reasoning.stall_ms': 'the same; default 600000',
  max_retries: 'attempts after the first; default 3',
  retry_share: 'retries as a share of all requests; beyond it a failure is told at once; default 0.2',
  'membership.probe_ms': 'an agent probes one peer in this time',
  'membership.retention_ms': 'nodes that LEFT are shown, and their models known, for so long',
  'membership.reconnect_ms': 'a closed tunnel may come back before other nodes are asked about it',
  'membership.grace_ms': 'from suspicion to eviction at least; up to 12 times as long where fewer nodes agree',
  minimum_agent_version: 'older agents, and those that do not say their version, are not admitted',
};

interface Schema {
  type?: string | undefined;
  enum?: unknown[] | undefined;
  default?: unknown;
  minimum?: number | undefined;
  maximum?: number | undefined;
  properties?: Record<string, Schema> | undefined;
  items?: Schema | undefined;
  anyOf?: Schema[] | undefined;
}
const schemaSchema: z.ZodType<Schema> = z.lazy(() =>
  z.looseObject({
    type: z.string().optional(),
    enum: z.array(z.unknown()).optional(),
    minimum: z.number().optional(),
    maximum: z.number().optional(),
    properties: z.record(z.string(), schemaSchema).optional(),
    items: schemaSchema.optional(),
    anyOf: z.array(schemaSchema).optional(),
  }),
);

/** @throws Error for a setting without a meaning above, and for a meaning of a removed setting */
export async function settingsPage(): Promise<string> {
  same('the environment', ENVIRONMENT, Object.keys(VARIABLES));
  const members = leaves(await settingsSchema());
  same('/admin/settings', Object.keys(members), Object.keys(MEMBERS));
  const rows = Object.entries(members).map(([name, schema]) => [
    code(name),
    MEMBERS[name] ?? '',
    form(schema),
    otherwise(schema),
  ]);
  return [
    '# Settings of a gateway',
    '## Environment',
    'Environment variables of `otela-gateway serve`; on Cloudflare `[vars]` in `wrangler.toml`, secrets by `wrangler secret put`. A change needs a restart.',
    table(
      ['variable', 'meaning', 'otherwise'],
      Object.entries(VARIABLES).map(([name, [meaning, fallback]]) => [code(name), meaning, fallback]),
    ),
    'On Cloudflare alone (`npm run deploy` sets them):',
    table(
      ['variable', 'meaning'],
      CLOUDFLARE.map(([name, meaning]) => [code(name), meaning]),
    ),
    '## `otela-gateway settings`',
    'Members of `PATCH /admin/settings`; `null` is the default. A change acts within 5 s.',
    table(['setting', 'meaning', 'form', 'default'], rows),
  ].join('\n\n');
}

async function settingsSchema(): Promise<Schema> {
  const document: unknown = JSON.parse(await openApiText());
  const body = z.object({ content: z.object({ 'application/json': z.object({ schema: schemaSchema }) }) });
  const patch = z.object({ patch: z.object({ requestBody: body }) });
  const { paths } = z.object({ paths: z.object({ '/admin/settings': patch }) }).parse(document);
  return paths['/admin/settings'].patch.requestBody.content['application/json'].schema;
}

/** By their path: `queue.unary_ms`, `oidc[].issuer`. */
function leaves(schema: Schema, path = ''): Record<string, Schema> {
  const [first] = schema.anyOf ?? [];
  if (first !== undefined && !('default' in schema)) return leaves(first, path);
  if (schema.items !== undefined) return leaves(schema.items, `${path}[]`);
  if (schema.properties === undefined) return { [path]: schema };
  const named = Object.entries(schema.properties);
  return Object.assign({}, ...named.map(([name, one]) => leaves(one, path === '' ? name : `${path}.${name}`)));
}

function form(schema: Schema): string {
  const { type, enum: words, minimum, maximum } = schema.anyOf?.[0] ?? schema;
  if (words !== undefined) return words.map((word) => code(String(word))).join(', ');
  return minimum === undefined || maximum === undefined ? `${type}` : `${minimum} to ${maximum}`;
}

function otherwise(schema: Schema): string {
  return 'default' in schema ? code(JSON.stringify(schema.default)) : '';
}

function same(what: string, there: readonly string[], described: readonly string[]): void {
  const missing = there.filter((name) => !described.includes(name));
  const gone = described.filter((name) => !there.includes(name));
  if (missing.length + gone.length > 0)
    throw new Error(`${what}: no meaning for ${missing.join(', ') || 'none'}; gone: ${gone.join(', ') || 'none'}`);
}

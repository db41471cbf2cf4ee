/**
 * The page of the reference with the settings of a gateway: its environment, and the members of `PATCH /admin/settings`
 * with bounds and defaults from their schema.
 */
import * as z from 'zod';
import { ENVIRONMENT_NAMES as ENVIRONMENT } from '../../gateway/environment-checks.ts';
import { openApiText } from '../dashboard-api-types.ts';
import { code, markdownTable } from './table.ts';

/** Meaning and default of each variable that `otela-gateway serve` reads. */
const VARIABLES: Readonly<Record<string, readonly [meaning: string, otherwise: string]>> = {
  BODY_LIMIT_BYTES: ['largest body that the gateway parses; a larger body needs `x-otela-model`', '34603008'],
  BODY_BUDGET_BYTES: ['memory for bodies above 1 MiB that are stored for a retry', '50331648'],
  BODY_STALL_MS: ['a request gets 408 if its body is slower than 500 bytes/s for this time', '30000'],
  BODY_UPLOADS_BYTES: [
    'memory for bodies that are being received, up to 1 MiB of each; above it, the slowest requests get 408',
    '134217728; Cloudflare 33554432',
  ],
  CORS_ORIGINS: [
    'origins whose pages may call `/v1` with a key: `*`, `off`, or origins such as `https://chat.example.org`, separated by commas',
    '`*`',
  ],
  REGISTRY_ACCESS: ['`open`: `/v1/registry` needs no key', 'any valid key'],
  MESH_RELAY: [
    '`off`: this gateway does not relay channels between agents that cannot reach each other',
    'on; not for several processes',
  ],
  DEFAULT_TRUST: [
    '`marked`: a request that names no providers trusts only providers with `trusted_by_default`; `admitted`: it trusts all providers. `default_trust` overrides this',
    'admitted',
  ],
  GATEWAY_REGION: [
    'region of this gateway, as nodes name it (`otela-agent start --region`); a plan of regions may have other shares for it',
    '',
  ],
  OIDC_CLIENT_SECRETS: ['secret: JSON object with the client secret of each OIDC issuer', ''],
  WEBHOOK_SECRETS: [
    'secret: JSON object with the secret of each webhook, `whsec_` and at least 24 bytes in base64: [webhooks](../webhooks.md)',
    '',
  ],
  SMTP_URL: [
    'secret: server for mail about events, such as `smtps://user:password@mail.example.org`: [mail](../webhooks.md#mail); only on Node',
    '',
  ],
  USAGE_KEPT_DAYS: ['days for which usage records are kept', '400'],
  USAGE_HELD_RECORDS: ['maximum usage records (1 KiB each) in memory while the storage cannot be written', '50000'],
  REQUIRE_SIGNED_AGENT: [
    '`on`: agents must prove that they are of a signed release; `off`: they need only a join token',
    'off; in a release, on',
  ],
  RELEASE_KEYS: ['public keys of those releases (base64url), separated by commas', "the release's own"],
  OLDEST_AGENT: ['with REQUIRE_SIGNED_AGENT: oldest release that is admitted', '0.1.0'],
  OTELA_METRICS_TOKEN: ['secret: bearer token that may only read `/metrics`', "only operators' keys"],
  REQUEST_LOG: ['requests to log: `error`, `all`, `off`', 'error'],
};

/** Variables that exist only on Cloudflare: a self-hosted gateway reads `admin.key` and `issuer/` instead. */
const CLOUDFLARE = [
  ['ADMIN_KEY_SHA256', "secret: SHA-256 of the first operator's key, in hex"],
  ['OTELA_GATEWAY_KEY', 'secret: private key with which the gateway admits nodes'],
  ['OTELA_GATEWAY_CERT', 'certificate of that key, signed by the root key'],
  ['OTELA_RETIRED_KEYS', 'previous keys, as `KEY:CERT`, separated by commas'],
  ['OTELA_REVOCATIONS', 'revocations by the root key, separated by commas'],
] as const;

/** Meaning of each member, with defaults that its schema cannot express. */
const MEMBERS: Readonly<Record<string, string>> = {
  default_trust: 'providers that a request trusts if it names none, as in `DEFAULT_TRUST`; default: `DEFAULT_TRUST`',
  public_url: 'URL at which browsers reach this gateway; identity providers redirect to it',
  'oidc[].issuer': 'URL of an OpenID Connect provider',
  'oidc[].name': 'name of the provider on the login page',
  'oidc[].client_id': 'client id of this gateway at the provider',
  'oidc[].audience': 'accept access tokens with this `aud` in place of API keys; null: accept none',
  'oidc[].scope': 'scope to request at login',
  'oidc[].admits':
    'users that may log in: `known`: created by an operator; `mapped`: with a claim that matches `roles` or `projects`; `everybody`: all',
  'oidc[].role_claim': 'claim that sets the role at each login; null: operators set it',
  'oidc[].roles': 'role and provider for each value of that claim; the highest role counts',
  'oidc[].project_claim': 'claim that sets the home project',
  'oidc[].projects': 'project id for each value of that claim; the first match is the user’s home project',
  'oidc[].leads': 'project ids for each value of that claim; the user becomes a lead of these projects',
  'oidc[].confirm_hours':
    'hours after which the provider is asked again whether it knows a person: [people that leave](../login.md#people-that-leave)',
  'oidc[].lapse_days':
    'a user’s keys are suspended if the provider has not confirmed the user for this number of days; null: never',
  'oidc[].group_claim': 'claim with the groups of a user, for access lists',
  'oidc[].groups': 'name of the group for each value of that claim',
  'queue.unary_ms': 'maximum wait for a free node, for non-streaming requests; 0: 503 immediately',
  'queue.stream_ms':
    'maximum wait for a free node, for streaming requests; requests also do not wait for a model if its last node ended longer ago',
  'queue.places': 'maximum requests that wait for one model',
  'queue.weights': 'weight of a project in the queue, by its id; other projects have 1',
  'user_limits.requests_per_minute':
    'requests per minute of all keys of a user, if no limits are set for the user; default: no limit',
  'user_limits.tokens_per_minute': 'tokens per minute, in the same way',
  'user_limits.concurrent_requests': 'concurrent requests, in the same way',
  'user_limits.tokens_per_month': 'tokens per calendar month (UTC), in the same way',
  'user_limits.gpu_seconds_per_month': 'GPU seconds per calendar month (UTC), in the same way',
  'user_limits.audio_seconds_per_month':
    'seconds of transcribed, translated and spoken audio per calendar month (UTC), in the same way',
  'user_limits.images_per_month': 'generated images per calendar month (UTC), in the same way',
  'user_limits.reasoning_tokens_per_request': 'reasoning tokens per request, in the same way',
  'user_limits.models': 'limits of each model, by its name; `*`: each other model',
  'files.count':
    'maximum files, unfinished uploads and their parts of one project; without a project, of a user or key',
  'files.bytes': 'maximum bytes of these; an upload counts with its declared size',
  'files.open_batches': 'maximum batches that have not ended, in the same way',
  'routing.policy':
    'policy of models without their own policy; default: least-load, and prefix-affinity for conversations and long prompts',
  'routing.timeouts.standard.first_byte_ms': 'maximum time until a response begins; default 900000',
  'routing.timeouts.standard.stall_ms': 'maximum time between two pieces of a response; default 120000',
  'routing.timeouts.reasoning.first_byte_ms': 'the same for reasoning models; default 1800000',
  'routing.timeouts.reasoning.stall_ms': 'the same for reasoning models; default 600000',
  max_retries: 'maximum retries of a request; default 3',
  retry_share: 'maximum retries as a share of all requests; above it, a failure is returned immediately; default 0.2',
  'membership.probe_ms': 'interval at which an agent probes one peer',
  'membership.retention_ms': 'how long LEFT nodes are shown and their models are known',
  'membership.reconnect_ms': 'time for a closed tunnel to reconnect, before other nodes are asked to probe the node',
  'membership.grace_ms': 'minimum time from suspicion to eviction; up to 12 times as long if fewer nodes agree',
  minimum_agent_version: 'oldest agent version that is admitted; agents that report no version are not admitted',
  'notifications.webhooks[].url': 'address that gets a POST for each event: [webhooks](../webhooks.md)',
  'notifications.webhooks[].events[]': 'events that the webhook gets; absent: all',
  'notifications.mail.from': 'sender of mail about events: [mail](../webhooks.md#mail)',
  'notifications.mail.to[]': 'recipients; each gets a message for each event',
  'notifications.mail.events[]': 'events about which mail is sent; absent: all',
  conversations_mib:
    'space for the [conversations](../dashboard.md#conversations-on-several-computers) of each person; 0: the gateway keeps none',
  'status_page.models[]': 'models of the public [status page](../observability.md#status-page), at most 50',
  'status_page.banner.level': '`info` or `warning`',
  'status_page.banner.text': 'message of the operator on the status page, one line',
  'prices.unit': 'unit of prices and amounts in [statements](../usage.md#statements), such as CHF or SU',
  'prices.decimals': 'decimals of an amount, to which each line of a statement is rounded',
  'prices.rules[].models[]': 'models of the rule; `org/*` is all models of org; absent: all',
  'prices.rules[].providers[]': 'providers of the nodes that ran the requests; absent: all',
  'prices.rules[].from': 'first day of the rule, UTC',
  'prices.rules[].to': 'last day of the rule, UTC',
  'prices.rules[].prompt': 'price of a million prompt tokens',
  'prices.rules[].cached': 'price of a million prompt tokens that the engine had cached; absent: the price of `prompt`',
  'prices.rules[].completion': 'price of a million completion tokens',
  'prices.rules[].request': 'price of a request',
  'prices.rules[].gpu_hour': 'price of an hour of one GPU: [GPU time](../usage.md#statements)',
  peer_limits:
    'limits of [peer institutions](../usage.md#limits-of-peer-institutions) at our nodes, by name; default: none',
  'trace.all':
    'true: all requests are in the [workload trace](../usage.md#trace); false: those of projects that enabled it',
  'trace.prefixes': 'true: the trace of all requests also shows which prompts begin with the same text',
  'trace.except.projects[]': 'projects that are never in the trace',
  'trace.except.users[]': 'users that are never in the trace',
  'trace.except.keys[]': 'keys that are never in the trace',
  sites:
    'what jobs of each cluster need, by PROVIDER/CLUSTER or PROVIDER, for `otela-agent sbatch`: [profiles](../admin.md#profiles-of-clusters)',
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
    markdownTable(
      ['variable', 'meaning', 'otherwise'],
      Object.entries(VARIABLES).map(([name, [meaning, fallback]]) => [code(name), meaning, fallback]),
    ),
    'Only on Cloudflare (`npm run deploy` sets them):',
    markdownTable(
      ['variable', 'meaning'],
      CLOUDFLARE.map(([name, meaning]) => [code(name), meaning]),
    ),
    '## `otela-gateway settings`',
    'Members of `PATCH /admin/settings`; `null` is the default. A change takes effect within 5 s.',
    markdownTable(['setting', 'meaning', 'form', 'default'], rows),
  ].join('\n\n');
}

async function settingsSchema(): Promise<Schema> {
  const document: unknown = JSON.parse(await openApiText());
  const body = z.object({ content: z.object({ 'application/json': z.object({ schema: schemaSchema }) }) });
  const patch = z.object({ patch: z.object({ requestBody: body }) });
  const { paths } = z.object({ paths: z.object({ '/admin/settings': patch }) }).parse(document);
  return paths['/admin/settings'].patch.requestBody.content['application/json'].schema;
}

/** All values of a schema by their path: `queue.unary_ms`, `oidc[].issuer`. */
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
    throw new Error(
      `${what}: settings without a meaning: ${missing.join(', ') || 'none'}; meanings of removed settings: ${gone.join(', ') || 'none'}`,
    );
}

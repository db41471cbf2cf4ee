/**
 * What the gateway stores in D1. Times are milliseconds since the epoch, UTC; the REST face writes them as RFC 3339.
 * A row that gave a right is revoked, never deleted: usage and audit go on pointing at its id.
 */
import { sql } from 'drizzle-orm';
import { index, integer, primaryKey, sqliteTable, text, uniqueIndex } from 'drizzle-orm/sqlite-core';
import type { RequestKind } from '../../shared/routing/kinds/kind.ts';
import type { WeightRule } from '../../shared/routing/policies/weights.ts';
import type { AccountScope } from './account.ts';
import type { Limits } from './limits/limits.ts';
import { MODEL_CLASSES } from './model-classes.ts';
import type { OwnRouting } from './routing-settings.ts';

/** Ordered: each may do what the ones before it may. */
export const ROLES = ['consumer', 'provider', 'operator'] as const;
export type Role = (typeof ROLES)[number];

/** What a key or a project narrows. NULL narrows nothing; an empty list allows nothing. Both apply where both speak. */
const restrictions = () => ({
  /** Model ids; one that ends in `*` stands for all that begin so. */
  models: text('models', { mode: 'json' }).$type<string[]>(),
  /** Names of the endpoint table, e.g. `chat/completions`. */
  endpoints: text('endpoints', { mode: 'json' }).$type<string[]>(),
  trustedProviders: text('trusted_providers', { mode: 'json' }).$type<string[]>(),
  regions: text('regions', { mode: 'json' }).$type<string[]>(),
  tiers: text('tiers', { mode: 'json' }).$type<string[]>(),
  limits: text('limits', { mode: 'json' }).$type<Limits>(),
  /** Whether `x-otela-no-track` is obeyed. */
  noTrack: integer('no_track', { mode: 'boolean' }).notNull().default(false),
  /** Whether a stream that breaks goes on at another node where the request does not say. */
  resume: integer('resume', { mode: 'boolean' }).notNull().default(false),
  /** How long its requests wait for a model that is being started, where they do not say; milliseconds. */
  startWaitMs: integer('start_wait_ms'),
  /** Policy, aliases and fallbacks of its own. */
  routing: text('routing', { mode: 'json' }).$type<OwnRouting>(),
});

export const apiKeys = sqliteTable(
  'api_keys',
  {
    id: text('id').primaryKey(),
    /** SHA-256 of the whole key, lower-case hex. The key is 256 random bits, so no salt and no slow hash are needed. */
    hash: text('hash').notNull().unique(),
    /** First characters of the key: enough for its owner to recognise it, too little to guess the rest. */
    prefix: text('prefix').notNull(),
    name: text('name').notNull(),
    role: text('role', { enum: ROLES }).notNull(),
    /** Of a key with role provider. */
    provider: text('provider'),
    userId: text('user_id'),
    projectId: text('project_id'),
    /** NULL: all that its role allows. */
    scopes: text('scopes', { mode: 'json' }).$type<AccountScope[]>(),
    ...restrictions(),
    /** The key that this one replaces. */
    rotatedFrom: text('rotated_from'),
    /** The key by which a person let the machine in that has this one: it ends with that. */
    grantedBy: text('granted_by'),
    createdAt: integer('created_at').notNull(),
    expiresAt: integer('expires_at'),
    lastUsedAt: integer('last_used_at'),
    revokedAt: integer('revoked_at'),
  },
  (table) => [
    index('api_keys_created').on(table.createdAt, table.id),
    index('api_keys_user').on(table.userId, table.createdAt),
    index('api_keys_project').on(table.projectId, table.createdAt),
    index('api_keys_revoked').on(table.revokedAt).where(sql`revoked_at IS NOT NULL`),
  ],
);

export const users = sqliteTable(
  'users',
  {
    id: text('id').primaryKey(),
    name: text('name').notNull(),
    email: text('email'),
    role: text('role', { enum: ROLES }).notNull(),
    /** Whose join tokens a user with role provider makes. */
    provider: text('provider'),
    projectId: text('project_id'),
    /** What all of their keys share; NULL: as the setting `user_limits` says. */
    limits: text('limits', { mode: 'json' }).$type<Limits>(),
    /** Groups that their claims gave at the last sign-in, as access lists name them. */
    groups: text('groups', { mode: 'json' }).$type<string[]>(),
    /** Who says who this is, and under which name; NULL for users that only have keys. */
    issuer: text('issuer'),
    subject: text('subject'),
    createdAt: integer('created_at').notNull(),
    lastLoginAt: integer('last_login_at'),
    /** When the claims were made that their rights are of; those of an older token change nothing. */
    claimsAt: integer('claims_at'),
    disabledAt: integer('disabled_at'),
  },
  (table) => [
    index('users_created').on(table.createdAt, table.id),
    uniqueIndex('users_identity').on(table.issuer, table.subject),
  ],
);

export const projects = sqliteTable(
  'projects',
  {
    id: text('id').primaryKey(),
    name: text('name').notNull(),
    ...restrictions(),
    /** Its requests are in the trace export. */
    trace: integer('trace', { mode: 'boolean' }).notNull().default(false),
    /** And in it, which prompts begin alike. */
    tracePrefixes: integer('trace_prefixes', { mode: 'boolean' }).notNull().default(false),
    createdAt: integer('created_at').notNull(),
    disabledAt: integer('disabled_at'),
  },
  (table) => [index('projects_created').on(table.createdAt, table.id)],
);

/** Who works in a project beside those whose own it is (`users.project_id`). */
export const projectMembers = sqliteTable(
  'project_members',
  {
    /** The project's id, a slash, the user's: followers copy rows by one column. */
    id: text('id').primaryKey(),
    projectId: text('project_id').notNull(),
    userId: text('user_id').notNull(),
    /** They let members in and out, and give them limits. */
    lead: integer('lead', { mode: 'boolean' }).notNull().default(false),
    /** Claims gave it, and each sign-in says it again; others were granted here, and claims leave them alone. */
    claimed: integer('claimed', { mode: 'boolean' }).notNull().default(false),
    createdAt: integer('created_at').notNull(),
  },
  (table) => [
    index('project_members_project').on(table.projectId, table.createdAt),
    index('project_members_user').on(table.userId),
  ],
);

/** What leads give people who work in their project, as members or because it is their home. Within what the project has. */
export const memberLimits = sqliteTable(
  'member_limits',
  {
    /** As of `project_members`. */
    id: text('id').primaryKey(),
    projectId: text('project_id').notNull(),
    userId: text('user_id').notNull(),
    limits: text('limits', { mode: 'json' }).$type<Limits>().notNull(),
    updatedAt: integer('updated_at').notNull(),
  },
  (table) => [index('member_limits_project').on(table.projectId), index('member_limits_user').on(table.userId)],
);

/** What people asked for, and what became of it. */
export const accessRequests = sqliteTable(
  'access_requests',
  {
    id: text('id').primaryKey(),
    userId: text('user_id').notNull(),
    /** One of the two is NULL. */
    projectId: text('project_id'),
    model: text('model'),
    reason: text('reason').notNull(),
    status: text('status', { enum: ['open', 'approved', 'refused'] }).notNull(),
    createdAt: integer('created_at').notNull(),
    decidedAt: integer('decided_at'),
  },
  (table) => [
    index('access_requests_created').on(table.createdAt, table.id),
    index('access_requests_user').on(table.userId, table.createdAt),
  ],
);

export const providers = sqliteTable(
  'providers',
  {
    /** `name`, or `name@peer`. */
    id: text('id').primaryKey(),
    name: text('name').notNull(),
    /** Trusted where neither key, project nor request names a provider. */
    trustedByDefault: integer('trusted_by_default', { mode: 'boolean' }).notNull().default(true),
    /** How many nodes it may have at a time; NULL: the default. */
    maxNodes: integer('max_nodes'),
    /** Names of models that its nodes may publish; one that ends in `*` stands for all that begin so. NULL: any. */
    models: text('models', { mode: 'json' }).$type<string[]>(),
    createdAt: integer('created_at').notNull(),
    deletedAt: integer('deleted_at'),
  },
  (table) => [index('providers_created').on(table.createdAt, table.id)],
);

/** What lets an agent in: names its provider and, where set, the only cluster it may speak for. */
export const joinTokens = sqliteTable(
  'join_tokens',
  {
    id: text('id').primaryKey(),
    hash: text('hash').notNull().unique(),
    prefix: text('prefix').notNull(),
    name: text('name').notNull(),
    provider: text('provider').notNull(),
    cluster: text('cluster'),
    /** How many nodes may be there with it at a time; NULL: as many as its provider may have. */
    maxNodes: integer('max_nodes'),
    /** How many have ever joined with it. */
    joined: integer('nodes').notNull().default(0),
    createdAt: integer('created_at').notNull(),
    expiresAt: integer('expires_at'),
    revokedAt: integer('revoked_at'),
  },
  (table) => [
    index('join_tokens_created').on(table.createdAt, table.id),
    index('join_tokens_provider').on(table.provider, table.createdAt),
  ],
);

/** What a factory of jobs exchanges its news with, and nothing else. */
export const factoryTokens = sqliteTable(
  'factory_tokens',
  {
    id: text('id').primaryKey(),
    hash: text('hash').notNull().unique(),
    prefix: text('prefix').notNull(),
    name: text('name').notNull(),
    /** Whose nodes its jobs become: a request that does not trust this provider wakes none of its models. */
    provider: text('provider').notNull(),
    createdAt: integer('created_at').notNull(),
    expiresAt: integer('expires_at'),
    revokedAt: integer('revoked_at'),
  },
  (table) => [index('factory_tokens_created').on(table.createdAt, table.id)],
);

/** Per model, what differs from the gateway's defaults; NULL is the default. */
export const modelSettings = sqliteTable('model_settings', {
  model: text('model').primaryKey(),
  firstByteMs: integer('first_byte_ms'),
  stallMs: integer('stall_ms'),
  /** Which of the installation's time-outs hold where it has none of its own. */
  class: text('class', { enum: MODEL_CLASSES }).notNull().default('standard'),
  policy: text('policy'),
  /** Other names of it. */
  aliases: text('aliases', { mode: 'json' }).$type<string[]>(),
  /** Models that are tried in turn where nobody serves it. */
  fallbacks: text('fallbacks', { mode: 'json' }).$type<string[]>(),
  maxRetries: integer('max_retries'),
  /** How long requests wait while it is being started, where neither they nor their keys say. */
  startWaitMs: integer('start_wait_ms'),
  /** The model's name is confidential: the trace has a keyed hash of it. */
  private: integer('private', { mode: 'boolean' }).notNull().default(false),
  updatedAt: integer('updated_at').notNull(),
});

/** What operators say of a model that holds for requests. A PATCH changes what it names: no older client takes an access list away. */
export const catalogue = sqliteTable('catalogue', {
  model: text('model').primaryKey(),
  /** The user who answers for it. */
  ownerId: text('owner_id'),
  /** Ids of keys, users and projects that see and use it; NULL: everybody. */
  access: text('access', { mode: 'json' }).$type<string[]>(),
  alwaysOn: integer('always_on', { mode: 'boolean' }).notNull().default(false),
  deprecatedAt: integer('deprecated_at'),
  /** From then on requests get 404. */
  sunsetAt: integer('sunset_at'),
  successor: text('successor'),
  updatedAt: integer('updated_at').notNull(),
});

/** What a model reads or writes. */
export const MODALITIES = ['text', 'image', 'audio', 'video', 'embedding'] as const;
type Modality = (typeof MODALITIES)[number];

/** What operators say of a model, for people: nothing is routed by it. */
export const modelCards = sqliteTable('model_cards', {
  model: text('model').primaryKey(),
  description: text('description').notNull(),
  license: text('license').notNull(),
  size: text('size').notNull(),
  contextLength: integer('context_length'),
  input: text('input', { mode: 'json' }).$type<Modality[]>().notNull(),
  output: text('output', { mode: 'json' }).$type<Modality[]>().notNull(),
  tools: integer('tools', { mode: 'boolean' }),
  reasoning: integer('reasoning', { mode: 'boolean' }),
  url: text('url'),
  updatedAt: integer('updated_at').notNull(),
});

/** Which share of a model's requests its nodes get, by rules. */
export const modelWeights = sqliteTable('model_weights', {
  model: text('model').primaryKey(),
  weights: text('weights', { mode: 'json' }).$type<WeightRule[]>().notNull(),
  /** Kinds that the weights are for; NULL: none. */
  kinds: text('kinds', { mode: 'json' }).$type<RequestKind[]>(),
  updatedAt: integer('updated_at').notNull(),
});

/** Settings of the whole gateway, by name. */
export const settings = sqliteTable('settings', {
  name: text('name').primaryKey(),
  value: text('value', { mode: 'json' }).$type<unknown>().notNull(),
  updatedAt: integer('updated_at').notNull(),
});

/**
 * Every change an administrator made. Its ids only grow, so they also tell which cached accounts are older than a change: what
 * isolates know of a key is compared by id, never by clock.
 */
export const auditLog = sqliteTable(
  'audit_log',
  {
    id: integer('id').primaryKey({ autoIncrement: true }),
    at: integer('at').notNull(),
    /** A key's or user's id, or `bootstrap`. */
    actor: text('actor').notNull(),
    /** `key.create`, `user.update` … */
    action: text('action').notNull(),
    /** Id of what was changed. */
    object: text('object').notNull(),
    before: text('before', { mode: 'json' }).$type<unknown>(),
    after: text('after', { mode: 'json' }).$type<unknown>(),
  },
  (table) => [index('audit_log_at').on(table.at), index('audit_log_object').on(table.object, table.id)],
);

/** What was created under an idempotency key. */
export const idempotency = sqliteTable(
  'idempotency',
  {
    actor: text('actor').notNull(),
    key: text('key').notNull(),
    /** SHA-256 of path and body: the same key for something else is a mistake. */
    request: text('request').notNull(),
    object: text('object').notNull(),
    createdAt: integer('created_at').notNull(),
  },
  (table) => [primaryKey({ columns: [table.actor, table.key] }), index('idempotency_created').on(table.createdAt)],
);

/** Dashboard sessions. */
export const sessions = sqliteTable(
  'sessions',
  {
    hash: text('hash').primaryKey(),
    userId: text('user_id').notNull(),
    createdAt: integer('created_at').notNull(),
    expiresAt: integer('expires_at').notNull(),
  },
  (table) => [index('sessions_expires').on(table.expiresAt), index('sessions_user').on(table.userId)],
);

/** Machines that a person let in and that have not fetched their key yet: see login/device-routes.ts. Five rows a person. */
export const deviceLogins = sqliteTable(
  'device_logins',
  {
    /** SHA-256 of the user code. */
    hash: text('hash').primaryKey(),
    userId: text('user_id').notNull(),
    projectId: text('project_id'),
    /** The key of whoever logged in with one. */
    approvedBy: text('approved_by'),
    denied: integer('denied', { mode: 'boolean' }).notNull(),
    expiresAt: integer('expires_at').notNull(),
  },
  (table) => [index('device_logins_user').on(table.userId), index('device_logins_expires').on(table.expiresAt)],
);

/**
 * What was used, by day (`2026-11-20`, UTC). Empty texts stand for "none": NULL would break the primary key. WITHOUT ROWID since
 * migration 0005, which this description cannot say: the primary key is the order in which rows lie, and a span of days is read
 * three times faster for it.
 */
export const usageTotals = sqliteTable(
  'usage_totals',
  {
    day: text('day').notNull(),
    project: text('project').notNull(),
    user: text('user').notNull(),
    key: text('key').notNull(),
    model: text('model').notNull(),
    provider: text('provider').notNull(),
    requests: integer('requests').notNull(),
    failed: integer('failed').notNull(),
    aborted: integer('aborted').notNull(),
    estimated: integer('estimated').notNull(),
    prompt: integer('prompt_tokens').notNull(),
    completion: integer('completion_tokens').notNull(),
    cached: integer('cached_tokens').notNull(),
    reasoning: integer('reasoning_tokens').notNull(),
    /** Requests whose answer began. The two sums below are of these. */
    firstTokens: integer('first_tokens').notNull().default(0),
    /** Sum of milliseconds to the first token as the client saw it, waits in queues included. */
    firstTokenMs: integer('first_token_ms').notNull(),
    /** The same from the moment at which the node got the request. */
    engineFirstTokenMs: integer('engine_first_token_ms').notNull().default(0),
    /** Sum of milliseconds over all requests. */
    queueMs: integer('queue_ms').notNull().default(0),
    /** Requests that are known to have taken `totalMs`: no line of a batch, no attempt whose end is unknown. */
    timed: integer('timed').notNull().default(0),
    totalMs: integer('total_ms').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.day, table.project, table.user, table.key, table.model, table.provider] }),
    index('usage_totals_provider').on(table.provider, table.day),
    index('usage_totals_user').on(table.user, table.day),
  ],
);

/** Which batches of totals are in: one that comes again changes nothing. */
export const usageBatches = sqliteTable(
  'usage_batches',
  {
    shard: text('shard').notNull(),
    batch: integer('batch').notNull(),
  },
  (table) => [primaryKey({ columns: [table.shard, table.batch] })],
);

/** Other institutions' issuers whose tickets are good here. `root` is their public key, base64url. */
export const peers = sqliteTable('peers', {
  name: text('name').primaryKey(),
  root: text('root').notNull().unique(),
  url: text('url'),
  createdAt: integer('created_at').notNull(),
});

/** Files of the Files API. Their bytes are in the file store, under the same id. */
export const files = sqliteTable(
  'files',
  {
    id: text('id').primaryKey(),
    /** Whose it is: `project:…`, `user:…` or `key:…`. */
    owner: text('owner').notNull(),
    /** The key or user that made it. */
    createdBy: text('created_by').notNull(),
    purpose: text('purpose').notNull(),
    filename: text('filename').notNull(),
    bytes: integer('bytes').notNull(),
    createdAt: integer('created_at').notNull(),
    expiresAt: integer('expires_at'),
  },
  (table) => [
    index('files_owner').on(table.owner, table.createdAt, table.id),
    index('files_expires').on(table.expiresAt),
  ],
);

/** Where a file stood in its owner's list that was deleted within a day: a client may delete while it lists. */
export const deletedFiles = sqliteTable(
  'deleted_files',
  {
    id: text('id').primaryKey(),
    owner: text('owner').notNull(),
    createdAt: integer('created_at').notNull(),
    deletedAt: integer('deleted_at').notNull(),
  },
  (table) => [index('deleted_files_deleted').on(table.deletedAt)],
);

/** Uploads in parts, until they are complete. */
export const uploads = sqliteTable(
  'uploads',
  {
    id: text('id').primaryKey(),
    owner: text('owner').notNull(),
    createdBy: text('created_by').notNull(),
    purpose: text('purpose').notNull(),
    filename: text('filename').notNull(),
    /** As declared: the parts must have as many. */
    bytes: integer('bytes').notNull(),
    status: text('status', { enum: ['pending', 'completed', 'cancelled'] }).notNull(),
    fileId: text('file_id'),
    createdAt: integer('created_at').notNull(),
    expiresAt: integer('expires_at').notNull(),
  },
  (table) => [index('uploads_expires').on(table.status, table.expiresAt)],
);

export const uploadParts = sqliteTable(
  'upload_parts',
  {
    id: text('id').primaryKey(),
    uploadId: text('upload_id').notNull(),
    /** Of its bytes in the file store. */
    fileId: text('file_id').notNull(),
    bytes: integer('bytes').notNull(),
    createdAt: integer('created_at').notNull(),
  },
  (table) => [index('upload_parts_upload').on(table.uploadId)],
);

/** Batches, for lists. What a batch is doing is in its object, and comes here when its state changes. */
export const batches = sqliteTable(
  'batches',
  {
    id: text('id').primaryKey(),
    owner: text('owner').notNull(),
    createdBy: text('created_by').notNull(),
    createdAt: integer('created_at').notNull(),
    /** Not terminal: a start wakes its object. */
    open: integer('open', { mode: 'boolean' }).notNull(),
    /** OpenAI's batch object as it was when this row was written. */
    summary: text('summary', { mode: 'json' }).$type<unknown>().notNull(),
  },
  (table) => [
    index('batches_owner').on(table.owner, table.createdAt, table.id),
    index('batches_open').on(table.open).where(sql`open = 1`),
  ],
);

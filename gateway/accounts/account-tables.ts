/**
 * The tables in D1 about accounts, tokens and settings. The other tables are in model-tables.ts, files/file-tables.ts
 * and usage/usage-tables.ts; drizzle.config.ts lists all these files. Times are milliseconds since the epoch, UTC; the
 * admin API writes them in RFC 3339. A row that gave a right is revoked, never deleted, because usage and audit log
 * still refer to its id.
 */
import { sql } from 'drizzle-orm';
import { index, integer, primaryKey, sqliteTable, text, uniqueIndex } from 'drizzle-orm/sqlite-core';
import type { Limits } from '../settings/limits-schema.ts';
import type { OwnRouting } from '../settings/routing-settings.ts';

/** Roles in ascending order: each includes the rights of the previous ones. */
export const ROLES = ['consumer', 'provider', 'operator'] as const;
export type Role = (typeof ROLES)[number];

/**
 * What a key may be used for. `inference`: /v1 without the registry. `registry`: /v1/registry. `usage`: read the usage
 * of the key or its user. `admin:read` and `admin`: /admin, within the rights of the key's role. `scim`: /scim, with
 * the role operator.
 */
export const ACCOUNT_SCOPES = ['inference', 'registry', 'usage', 'admin:read', 'admin', 'scim'] as const;
export type AccountScope = (typeof ACCOUNT_SCOPES)[number];

/**
 * Restrictions of a key or a project. NULL: not restricted; an empty list allows nothing. If a key and its project both
 * have a restriction, a request must satisfy both.
 */
const restrictions = () => ({
  /** Model ids; an id that ends in `*` matches all models with that prefix. */
  models: text('models', { mode: 'json' }).$type<string[]>(),
  /** Names from the endpoint table, e.g. `chat/completions`. */
  endpoints: text('endpoints', { mode: 'json' }).$type<string[]>(),
  trustedProviders: text('trusted_providers', { mode: 'json' }).$type<string[]>(),
  regions: text('regions', { mode: 'json' }).$type<string[]>(),
  tiers: text('tiers', { mode: 'json' }).$type<string[]>(),
  limits: text('limits', { mode: 'json' }).$type<Limits>(),
  /** True if the request header `x-otela-no-track` is obeyed: the request is then counted but not recorded. */
  noTrack: integer('no_track', { mode: 'boolean' }).notNull().default(false),
  /** True if a broken stream is resumed on another node, unless the request's header says otherwise. */
  resume: integer('resume', { mode: 'boolean' }).notNull().default(false),
  /**
   * Milliseconds for which requests wait for a model that is being started, unless the request's header says otherwise.
   */
  startWaitMs: integer('start_wait_ms'),
  /** The policy, aliases and fallbacks of this key or project. */
  routing: text('routing', { mode: 'json' }).$type<OwnRouting>(),
});

export const apiKeys = sqliteTable(
  'api_keys',
  {
    id: text('id').primaryKey(),
    /**
     * SHA-256 of the whole key, lower-case hex. The key has 256 random bits, so it needs neither a salt nor a slow
     * hash.
     */
    hash: text('hash').notNull().unique(),
    /** The first characters of the key: enough for its owner to recognize it, too few to guess the rest. */
    prefix: text('prefix').notNull(),
    name: text('name').notNull(),
    role: text('role', { enum: ROLES }).notNull(),
    /** For a key with the role provider: the provider that the key acts for. */
    provider: text('provider'),
    userId: text('user_id'),
    projectId: text('project_id'),
    /** NULL: all scopes that the key's role allows. */
    scopes: text('scopes', { mode: 'json' }).$type<AccountScope[]>(),
    ...restrictions(),
    /** Id of the key that this key replaced. */
    rotatedFrom: text('rotated_from'),
    /**
     * For the key of a machine that logged in: id of the key that approved the login. If that key ends, this key ends
     * too.
     */
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
    /** For a user with the role provider: the provider for which the user creates join tokens. */
    provider: text('provider'),
    projectId: text('project_id'),
    /** Limits that all of the user's keys share; NULL: the setting `user_limits` applies. */
    limits: text('limits', { mode: 'json' }).$type<Limits>(),
    /** Groups from the user's latest claims, as access lists name them. */
    groups: text('groups', { mode: 'json' }).$type<string[]>(),
    /** The identity provider, and the user's name there (`sub`); NULL for users that only have keys. */
    issuer: text('issuer'),
    subject: text('subject'),
    createdAt: integer('created_at').notNull(),
    lastLoginAt: integer('last_login_at'),
    /**
     * When the identity provider made the claims that last decided the user's rights. Older claims change nothing.
     * Milliseconds since the epoch. Negative: the provider refused to confirm the user at this time.
     */
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
    /** True if the project's requests are in the trace export. */
    trace: integer('trace', { mode: 'boolean' }).notNull().default(false),
    /** True if the project's lines in the trace export also show which prompts have the same beginning. */
    tracePrefixes: integer('trace_prefixes', { mode: 'boolean' }).notNull().default(false),
    createdAt: integer('created_at').notNull(),
    disabledAt: integer('disabled_at'),
  },
  (table) => [index('projects_created').on(table.createdAt, table.id)],
);

/** Additional members of projects. A user also works in the home project (`users.project_id`), without a row here. */
export const projectMembers = sqliteTable(
  'project_members',
  {
    /** `PROJECT/USER`. */
    id: text('id').primaryKey(),
    projectId: text('project_id').notNull(),
    userId: text('user_id').notNull(),
    /** True if the user may add and remove members and set their limits. */
    lead: integer('lead', { mode: 'boolean' }).notNull().default(false),
    /**
     * True if an identity provider's claims gave the membership; each sign-in renews it. False if an operator or a lead
     * granted it; claims then do not change it.
     */
    claimed: integer('claimed', { mode: 'boolean' }).notNull().default(false),
    createdAt: integer('created_at').notNull(),
  },
  (table) => [
    index('project_members_project').on(table.projectId, table.createdAt),
    index('project_members_user').on(table.userId),
  ],
);

/**
 * Limits that a project's leads set for one user of the project (a member, or a user with it as home project). They
 * cannot exceed the project's limits.
 */
export const memberLimits = sqliteTable(
  'member_limits',
  {
    /** `PROJECT/USER`, as in `project_members`. */
    id: text('id').primaryKey(),
    projectId: text('project_id').notNull(),
    userId: text('user_id').notNull(),
    limits: text('limits', { mode: 'json' }).$type<Limits>().notNull(),
    updatedAt: integer('updated_at').notNull(),
  },
  (table) => [index('member_limits_project').on(table.projectId), index('member_limits_user').on(table.userId)],
);

/** Requests of users for access, and their results. */
export const accessRequests = sqliteTable(
  'access_requests',
  {
    id: text('id').primaryKey(),
    userId: text('user_id').notNull(),
    /** The requested project; NULL if the request is for a model. */
    projectId: text('project_id'),
    model: text('model'),
    /** Set if the request is for the right to contribute nodes: the provider, and the requested limits. Otherwise NULL. */
    provider: text('provider'),
    cluster: text('cluster'),
    maxNodes: integer('max_nodes'),
    expiresAt: integer('expires_at'),
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

/** Rights of users to create join tokens for one provider and cluster; see admin/people/provider-rights.ts. */
export const providerRights = sqliteTable(
  'provider_rights',
  {
    id: text('id').primaryKey(),
    userId: text('user_id').notNull(),
    provider: text('provider').notNull(),
    cluster: text('cluster').notNull(),
    /** Maximum concurrent nodes with all tokens of this right together. */
    maxNodes: integer('max_nodes').notNull(),
    /** Id of the key or user that granted the right. */
    grantedBy: text('granted_by').notNull(),
    createdAt: integer('created_at').notNull(),
    expiresAt: integer('expires_at').notNull(),
    revokedAt: integer('revoked_at'),
  },
  (table) => [
    index('provider_rights_created').on(table.createdAt, table.id),
    index('provider_rights_user').on(table.userId, table.createdAt),
  ],
);

export const providers = sqliteTable(
  'providers',
  {
    /** The provider's id: `name`, or `name@peer` for a provider of a peer institution. */
    id: text('id').primaryKey(),
    name: text('name').notNull(),
    /** True if the provider is trusted when neither key, project nor request names providers. */
    trustedByDefault: integer('trusted_by_default', { mode: 'boolean' }).notNull().default(true),
    /** Maximum concurrent nodes; NULL: the default. */
    maxNodes: integer('max_nodes'),
    /**
     * Names of models that the provider's nodes may publish; a name that ends in `*` matches all models with that
     * prefix. NULL: any.
     */
    models: text('models', { mode: 'json' }).$type<string[]>(),
    createdAt: integer('created_at').notNull(),
    deletedAt: integer('deleted_at'),
  },
  (table) => [index('providers_created').on(table.createdAt, table.id)],
);

/** Join tokens. A token contains its provider, and optionally the only cluster that an agent may join with it. */
export const joinTokens = sqliteTable(
  'join_tokens',
  {
    id: text('id').primaryKey(),
    hash: text('hash').notNull().unique(),
    prefix: text('prefix').notNull(),
    name: text('name').notNull(),
    provider: text('provider').notNull(),
    cluster: text('cluster'),
    /** Maximum concurrent nodes with this token; NULL: the provider's maximum. */
    maxNodes: integer('max_nodes'),
    /** The right by which a user created the token; NULL: the user has the role provider or operator. */
    rightId: text('right_id'),
    /** Number of nodes that ever joined with this token. */
    joined: integer('nodes').notNull().default(0),
    createdAt: integer('created_at').notNull(),
    expiresAt: integer('expires_at'),
    revokedAt: integer('revoked_at'),
  },
  (table) => [
    index('join_tokens_created').on(table.createdAt, table.id),
    index('join_tokens_provider').on(table.provider, table.createdAt),
    index('join_tokens_right').on(table.rightId),
  ],
);

/** Factory tokens, with which autoscalers exchange state with the gateway. They give no other right. */
export const factoryTokens = sqliteTable(
  'factory_tokens',
  {
    id: text('id').primaryKey(),
    hash: text('hash').notNull().unique(),
    prefix: text('prefix').notNull(),
    name: text('name').notNull(),
    /**
     * The provider of the nodes that the autoscaler's jobs become. A request that does not trust this provider starts
     * none of its models.
     */
    provider: text('provider').notNull(),
    createdAt: integer('created_at').notNull(),
    expiresAt: integer('expires_at'),
    revokedAt: integer('revoked_at'),
  },
  (table) => [index('factory_tokens_created').on(table.createdAt, table.id)],
);

/** Settings of the whole gateway, by name. */
export const settings = sqliteTable('settings', {
  name: text('name').primaryKey(),
  value: text('value', { mode: 'json' }).$type<unknown>().notNull(),
  updatedAt: integer('updated_at').notNull(),
});

/**
 * Every change that an administrator or a login made. Ids only grow. To find cached accounts that are older than a
 * change, isolates compare these ids and not times, because clocks may differ.
 */
export const auditLog = sqliteTable(
  'audit_log',
  {
    id: integer('id').primaryKey({ autoIncrement: true }),
    at: integer('at').notNull(),
    /** Id of the key, user or factory token that made the change; or `bootstrap`, or `login`. */
    actor: text('actor').notNull(),
    /** What was done, for example `key.create`. */
    action: text('action').notNull(),
    /** Id or name of the changed object. */
    object: text('object').notNull(),
    before: text('before', { mode: 'json' }).$type<unknown>(),
    after: text('after', { mode: 'json' }).$type<unknown>(),
  },
  (table) => [index('audit_log_at').on(table.at), index('audit_log_object').on(table.object, table.id)],
);

/** Objects that were created with an idempotency key. */
export const idempotency = sqliteTable(
  'idempotency',
  {
    actor: text('actor').notNull(),
    key: text('key').notNull(),
    /** SHA-256 of path and body. A different request with the same idempotency key is refused. */
    request: text('request').notNull(),
    object: text('object').notNull(),
    createdAt: integer('created_at').notNull(),
  },
  (table) => [primaryKey({ columns: [table.actor, table.key] }), index('idempotency_created').on(table.createdAt)],
);

/** Sessions of browsers at the dashboard. */
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

/**
 * Approved logins of machines that have not fetched their key yet; see login/device-routes.ts. At most five rows per
 * user.
 */
export const deviceLogins = sqliteTable(
  'device_logins',
  {
    /** SHA-256 of the user code. */
    hash: text('hash').primaryKey(),
    userId: text('user_id').notNull(),
    projectId: text('project_id'),
    /** Id of the key with which the user approved; NULL: the user was logged in at an identity provider. */
    approvedBy: text('approved_by'),
    denied: integer('denied', { mode: 'boolean' }).notNull(),
    expiresAt: integer('expires_at').notNull(),
  },
  (table) => [index('device_logins_user').on(table.userId), index('device_logins_expires').on(table.expiresAt)],
);

/** Issuers of peer institutions; their tickets are accepted here. `root`: public key, base64url. */
export const peers = sqliteTable('peers', {
  name: text('name').primaryKey(),
  root: text('root').notNull().unique(),
  url: text('url'),
  createdAt: integer('created_at').notNull(),
});

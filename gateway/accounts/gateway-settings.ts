/** The gateway's settings in D1. The registry's snapshot copies them to every isolate. */
import { asc, desc, eq, gt } from 'drizzle-orm';
import * as z from 'zod';
import { type FailureDetectionSettings, MEMBERSHIP_DEFAULTS, membershipSchema } from '../../shared/gossip/index.ts';
import { VERSION } from '../../shared/release/release-manifest.ts';
import type { RegionPlan } from '../../shared/routing/region-shares.ts';
import type { Env } from '../env.ts';
import { FILE_LIMITS, type FileLimits, fileLimitsSchema } from '../settings/file-limits.ts';
import { type Limits, limitsSchema, USER_LIMITS } from '../settings/limits-schema.ts';
import { type PeerLimits, peerLimitsSchema } from '../settings/peer-limits.ts';
import { QUEUE_DEFAULTS, type QueueSettings, queueSchema } from '../settings/queue-settings.ts';
import { planOf } from '../settings/region-settings.ts';
import { RETRY_DEFAULTS, type RetrySettings, retrySettings } from '../settings/retry-settings.ts';
import {
  CLASS_TIMEOUTS,
  type ModelSettings,
  type RoutingSettings,
  routingSchema,
} from '../settings/routing-settings.ts';
import { TRACE, TRACE_DEFAULTS, type TraceSettings, traceSettingsOf } from '../settings/trace-settings.ts';
import { ACCOUNT_CACHED_MS, type Account, matchesModelPattern } from './account.ts';
import { auditLog, providers, settings } from './account-tables.ts';
import { database, queryOrUnavailable } from './database.ts';
import { issuersSchema, type OidcIssuer } from './login/oidc-config.ts';
import type { CatalogueEntry, ModelCatalogue } from './model-access.ts';
import { catalogue, modelSettings, modelWeights } from './model-tables.ts';

interface ProviderSettings {
  trusted_by_default: boolean;
  deleted: boolean;
  /** Models that the provider's nodes may publish; absent: any. */
  models?: readonly string[];
}

export interface GatewaySettings {
  /** False until D1 has been read once. Until then no provider is trusted, and requests get 503. */
  known: boolean;
  models: Record<string, ModelSettings>;
  catalogue: ModelCatalogue;
  /** The gateway's policy and timeouts. Settings of a model override them. */
  routing: RoutingSettings;
  /** A planner's shares of requests by region, valid until `expires_at`; undefined: there is no plan. */
  regionPlan: RegionPlan | undefined;
  /** Every provider that this gateway ever knew, including deleted ones. */
  providers: Record<string, ProviderSettings>;
  /**
   * Providers that are trusted if a request names none: `admitted`: all providers whose nodes our issuer admitted;
   * `marked`: providers with `trusted_by_default`.
   */
  defaultTrust: 'admitted' | 'marked';
  /** How requests wait for a free node. */
  queue: QueueSettings;
  /** Limits that the keys of a user without individual limits share. Accounts contain a copy. */
  userLimits: Limits;
  /** Quotas for the files and batches of one owner. */
  files: FileLimits;
  /** Limits of peer institutions at this institution's nodes, by name. */
  peerLimits: PeerLimits;
  /** Which requests are in the workload trace. */
  trace: TraceSettings;
  /** Retries of failed attempts; a model may have its own number. */
  retries: RetrySettings;
  /** How fast nodes that do not answer probes are detected, and how long LEFT nodes are shown. */
  membership: FailureDetectionSettings;
  /** The oldest agent version that is admitted; undefined: every version is admitted. */
  minimumAgentVersion: string | undefined;
  oidc: OidcIssuer[];
  /** Public address of this gateway for browsers; undefined: the address in each request is used. */
  publicUrl: string | undefined;
  /**
   * Keys, users and projects that changed recently: maps the id to the id of its last change in the audit log. Accounts
   * that were read before that change are stale.
   */
  changed: Record<string, number>;
  /**
   * Id of a change in the audit log. All accounts that were read before this change are stale: either it changed the
   * gateway's settings, or `changed` contains only changes after it.
   */
  changedSince: number;
}

export const NO_SETTINGS: GatewaySettings = {
  known: false,
  models: {},
  catalogue: {},
  routing: {},
  regionPlan: undefined,
  providers: {},
  defaultTrust: 'admitted',
  queue: QUEUE_DEFAULTS,
  userLimits: {},
  files: FILE_LIMITS,
  peerLimits: {},
  trace: TRACE_DEFAULTS,
  retries: RETRY_DEFAULTS,
  membership: MEMBERSHIP_DEFAULTS,
  minimumAgentVersion: undefined,
  oidc: [],
  publicUrl: undefined,
  changed: {},
  changedSince: 0,
};

/**
 * How long a change stays in the snapshot: as long as an isolate caches an account, plus a minute in which the snapshot
 * reaches all isolates.
 */
const CHANGES_RETENTION_MS = ACCOUNT_CACHED_MS + 60_000;
/** Maximum changes in the snapshot, of 40 bytes each. */
const CHANGES_MAX = 2_000;
/** Maximum rows of each table below. The snapshot contains all rows, so the admin API refuses to create more. */
export const MODEL_SETTINGS_MAX = 1_000;
export const PROVIDERS_MAX = 2_000;
export const CATALOGUE_MAX = 500;

/** A version such as 0.2.0 or 0.2.0-rc.1. */
export const versionSchema = z.string().regex(VERSION, 'is not a version such as 0.2.0');

/** Matches the audit log's actions that may change a cached account. */
export const OF_ACCOUNTS = /^(key|user|project)\./;

/** Rejects with ApiError 503 if D1 cannot be reached. */
export async function readTraceSettings(env: Pick<Env, 'DB'>): Promise<TraceSettings> {
  const [row] = await queryOrUnavailable(
    database(env).select({ value: settings.value }).from(settings).where(eq(settings.name, TRACE)),
  );
  return traceSettingsOf(row?.value);
}

/** Rejects with ApiError 503 if D1 cannot be reached. The registry then keeps the previous settings. */
export async function readGatewaySettings(
  env: Pick<Env, 'DB' | 'DEFAULT_TRUST'>,
  now = Date.now(),
): Promise<GatewaySettings> {
  const db = database(env);
  const [models, weights, listed, known, named, changes] = await queryOrUnavailable(
    db.batch([
      db.select().from(modelSettings).limit(MODEL_SETTINGS_MAX),
      db.select().from(modelWeights).limit(MODEL_SETTINGS_MAX),
      db.select().from(catalogue).limit(CATALOGUE_MAX),
      db.select().from(providers).orderBy(asc(providers.createdAt)).limit(PROVIDERS_MAX),
      db.select().from(settings),
      db
        .select({ object: auditLog.object, id: auditLog.id, action: auditLog.action, at: auditLog.at })
        .from(auditLog)
        .where(gt(auditLog.at, now - CHANGES_RETENTION_MS))
        .orderBy(desc(auditLog.id))
        .limit(CHANGES_MAX + 1),
    ]),
  );
  const changed = new Map<string, number>();
  for (const { object, id, action } of changes.toReversed()) {
    if (OF_ACCOUNTS.test(action)) changed.set(object, id);
  }
  // A change of the settings may have changed the trusted identity providers, so every account must be read again.
  const settled = changes.find(({ action }) => action === 'settings.update')?.id ?? 0;
  const byName = new Map(named.map(({ name, value }) => [name, value]));
  return {
    known: true,
    models: modelsOf(models, weights),
    catalogue: Object.fromEntries(listed.map((row) => [row.model, catalogueEntry(row)])),
    routing: routingSchema.safeParse(byName.get('routing') ?? {}).data ?? {},
    regionPlan: planOf(byName.get('region_plan')),
    providers: Object.fromEntries(
      known.map(({ id, trustedByDefault, deletedAt, models: may }) => [
        id,
        { trusted_by_default: trustedByDefault, deleted: deletedAt !== null, ...(may !== null && { models: may }) },
      ]),
    ),
    defaultTrust: defaultTrust(byName.get('default_trust') ?? env.DEFAULT_TRUST),
    queue: queueSchema.safeParse(byName.get('queue') ?? {}).data ?? QUEUE_DEFAULTS,
    userLimits: limitsSchema.safeParse(byName.get(USER_LIMITS)).data ?? {},
    files: fileLimitsSchema.safeParse(byName.get('files') ?? {}).data ?? FILE_LIMITS,
    peerLimits: peerLimitsSchema.safeParse(byName.get('peer_limits') ?? {}).data ?? {},
    trace: traceSettingsOf(byName.get(TRACE)),
    retries: retrySettings(byName),
    membership: membershipSchema.safeParse(byName.get('membership') ?? {}).data ?? MEMBERSHIP_DEFAULTS,
    minimumAgentVersion: versionSchema.safeParse(byName.get('minimum_agent_version')).data,
    oidc: issuersSchema.safeParse(byName.get('oidc')).data ?? [],
    publicUrl: z.url().safeParse(byName.get('public_url')).data,
    changed: Object.fromEntries(changed),
    changedSince: Math.max(settled, changes.length > CHANGES_MAX ? (changes.at(-1)?.id ?? 0) : 0),
  };
}

function catalogueEntry(row: typeof catalogue.$inferSelect): CatalogueEntry {
  const { access, alwaysOn, deprecatedAt, sunsetAt, successor } = row;
  return {
    ...(access !== null && { access }),
    ...(alwaysOn && { always_on: true }),
    ...(deprecatedAt !== null && { deprecated_at: deprecatedAt }),
    ...(sunsetAt !== null && { sunset_at: sunsetAt }),
    ...(successor !== null && { successor }),
  };
}

/** Parses the setting. An unknown value means `marked`: a typo must not widen trust. */
function defaultTrust(value: unknown): GatewaySettings['defaultTrust'] {
  const word = typeof value === 'string' ? value.trim().toLowerCase() : value;
  return word === undefined || word === '' || word === 'admitted' ? 'admitted' : 'marked';
}

type ModelRow = typeof modelSettings.$inferSelect;

function modelsOf(rows: readonly ModelRow[], weights: readonly (typeof modelWeights.$inferSelect)[]) {
  const models: Record<string, ModelSettings> = Object.fromEntries(rows.map((row) => [row.model, ofRow(row)]));
  for (const { model, weights: rules, kinds } of weights)
    models[model] = { ...settingsOf({ models }, model), weights: rules, ...(kinds === null ? {} : { kinds }) };
  return models;
}

/** Converts a row to settings. Unset fields are omitted; the gateway's defaults apply to them. */
function ofRow(row: ModelRow): ModelSettings {
  return {
    ...(row.firstByteMs === null ? {} : { first_byte_ms: row.firstByteMs }),
    ...(row.stallMs === null ? {} : { stall_ms: row.stallMs }),
    ...(row.class === 'standard' ? {} : { class: row.class }),
    ...(row.policy === null ? {} : { policy: row.policy }),
    ...(row.aliases === null ? {} : { aliases: row.aliases }),
    ...(row.fallbacks === null ? {} : { fallbacks: row.fallbacks }),
    ...(row.maxRetries === null ? {} : { max_retries: row.maxRetries }),
    ...(row.startWaitMs === null ? {} : { start_wait_ms: row.startWaitMs }),
    ...(row.firstTokenMs === null ? {} : { first_token_ms: row.firstTokenMs }),
  };
}

const NOTHING_SET: ModelSettings = {};

/** Returns the settings of a model. The name comes from a client, so it may be `__proto__`. */
export function settingsOf({ models }: Pick<GatewaySettings, 'models'>, model: string): ModelSettings {
  return Object.hasOwn(models, model) ? (models[model] ?? NOTHING_SET) : NOTHING_SET;
}

/** True if the provider may publish a model of this name. */
export function mayPublish(
  { providers }: Pick<GatewaySettings, 'providers'>,
  provider: string,
  model: string,
): boolean {
  const given = Object.hasOwn(providers, provider) ? providers[provider]?.models : undefined;
  return given === undefined || matchesModelPattern(given, model);
}

/**
 * Returns the model's timeouts; otherwise those of its class in the gateway's settings, otherwise the class's defaults.
 */
export function timeoutsOf(given: GatewaySettings, model: string): { first_byte_ms: number; stall_ms: number } {
  const { class: kind = 'standard', first_byte_ms, stall_ms } = settingsOf(given, model);
  const ofClass = given.routing.timeouts?.[kind];
  const shipped = CLASS_TIMEOUTS[kind];
  return {
    first_byte_ms: first_byte_ms ?? ofClass?.first_byte_ms ?? shipped.first_byte_ms,
    stall_ms: stall_ms ?? ofClass?.stall_ms ?? shipped.stall_ms,
  };
}

/** Settings indexed for requests. Computed once for each snapshot with new settings. */
interface SettingsIndex {
  /** From an alias to the model's name. */
  aliases: ReadonlyMap<string, string>;
  changed: ReadonlyMap<string, number>;
  deleted: ReadonlySet<string>;
  defaults: 'admitted' | readonly string[];
}

const indexes = new WeakMap<GatewaySettings, SettingsIndex>();

export function settingsIndex(given: GatewaySettings): SettingsIndex {
  const known = indexes.get(given);
  if (known !== undefined) return known;
  const all = Object.entries(given.providers);
  const marked = all.flatMap(([id, provider]) => (provider.trusted_by_default && !provider.deleted ? [id] : []));
  const aliases = Object.entries(given.models).flatMap(([model, { aliases: names = [] }]) =>
    names.map((name) => [name, model] as const),
  );
  const made: SettingsIndex = {
    aliases: new Map(aliases),
    changed: new Map(Object.entries(given.changed)),
    deleted: new Set(all.flatMap(([id, { deleted }]) => (deleted ? [id] : []))),
    defaults: given.defaultTrust === 'admitted' ? 'admitted' : marked,
  };
  indexes.set(given, made);
  return made;
}

/** True if something that `account` depends on (a key, user, project or setting) changed after it was read. */
export function isAccountStale(
  given: GatewaySettings,
  { keyId, grantedBy, userId, projectId, seen }: Pick<Account, 'keyId' | 'grantedBy' | 'userId' | 'projectId' | 'seen'>,
): boolean {
  if (seen < given.changedSince) return true;
  const { changed } = settingsIndex(given);
  if (changed.size === 0) return false;
  return [keyId, grantedBy, userId, projectId].some((id) => id !== undefined && (changed.get(id) ?? 0) > seen);
}

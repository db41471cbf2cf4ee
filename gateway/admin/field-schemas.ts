/** Schemas of fields that several objects of the admin API have. */
import { and, desc, type SQL } from 'drizzle-orm';
import type { SQLiteColumn, SQLiteTable } from 'drizzle-orm/sqlite-core';
import * as z from 'zod';
import { FUNCTIONS_ENDPOINT } from '../../shared/batch/function-context.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { ENDPOINTS, REALTIME } from '../../shared/openai/endpoints.ts';
import { PROVIDER_ID_PATTERN, PROVIDER_LIST_MAX } from '../../shared/routing/trusted-providers.ts';
import { endpointPathName } from '../accounts/account.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import { policyNames } from '../routing/policy-selector.ts';
import { type Limits, limitsSchema } from '../settings/limits-schema.ts';
import { type OwnRouting, ownRoutingSchema, startWaitSchema } from '../settings/routing-settings.ts';
import { listPage, olderThan, type PageQuery, requireAfter, rfc3339 } from './pagination.ts';

/** A time in RFC 3339 that must be in the future. Stored as milliseconds since the epoch. */
export const expirySchema = z.iso.datetime({ offset: true }).nullable();

export function expiryMs(text: string | null | undefined, now: number): number | null {
  if (text === null || text === undefined) return null;
  const ms = Date.parse(text);
  if (ms > now) return ms;
  throw new ApiError('unprocessable_content', 'expires_at: is in the past.', { param: 'expires_at' });
}

export const providerIdSchema = z.string().regex(PROVIDER_ID_PATTERN);
const LIST_MAX = 100;
const endpointNames = [...ENDPOINTS, REALTIME, { path: FUNCTIONS_ENDPOINT }].map(endpointPathName);

/** Restrictions of a key or a project; null: not restricted, an empty list allows nothing. */
export const restrictionsSchema = z.strictObject({
  models: z.array(z.string().min(1).max(256)).max(LIST_MAX).nullable(),
  endpoints: z.array(z.enum(endpointNames)).max(endpointNames.length).nullable(),
  trusted_providers: z.array(providerIdSchema).max(PROVIDER_LIST_MAX).nullable(),
  regions: z.array(z.string().min(1).max(63)).max(LIST_MAX).nullable(),
  tiers: z
    .array(z.enum(['stable', 'volatile']))
    .max(2)
    .nullable(),
});

/** The name of an available policy. */
export const policySchema = z
  .string()
  .refine((name) => policyNames().includes(name), { error: () => `must be one of ${policyNames().join(', ')}` })
  // A getter, because `serve --policy` adds policies after this module was loaded and before the OpenAPI document is
  // made.
  .meta({
    get enum() {
      return policyNames();
    },
  });

/** Options that change how a request is served, but give no rights. */
export const servingOptionsSchema = z.strictObject({
  /** True if a broken stream is resumed on another node, as with `x-otela-resume: 1`. */
  resume: z.boolean(),
  /**
   * Milliseconds for which a request without `x-otela-wait` waits for a model that is being started; null: the model's
   * settings apply.
   */
  start_wait_ms: startWaitSchema.nullable(),
  /** The policy, aliases and fallbacks of this key or project. */
  routing: ownRoutingSchema.extend({ policy: policySchema.optional() }).nullable(),
});

/** Fields that only operators may set; otherwise users could remove their own limits. */
export const grantsSchema = z.strictObject({ limits: limitsSchema.nullable(), no_track: z.boolean() });

type Narrowed = z.infer<typeof restrictionsSchema> &
  z.infer<typeof grantsSchema> &
  z.infer<typeof servingOptionsSchema>;
type Columns = { [Name in keyof Narrowed]?: Narrowed[Name] | undefined };

/** Returns the columns for these fields. Absent fields are omitted, so that a PATCH changes nothing else. */
export function restrictionColumns(body: Columns) {
  return {
    ...(body.models !== undefined && { models: body.models }),
    ...(body.endpoints !== undefined && { endpoints: body.endpoints }),
    ...(body.trusted_providers !== undefined && { trustedProviders: body.trusted_providers }),
    ...(body.regions !== undefined && { regions: body.regions }),
    ...(body.tiers !== undefined && { tiers: body.tiers }),
    ...(body.limits !== undefined && { limits: body.limits }),
    ...(body.no_track !== undefined && { noTrack: body.no_track }),
    ...(body.resume !== undefined && { resume: body.resume }),
    ...(body.start_wait_ms !== undefined && { startWaitMs: body.start_wait_ms }),
    ...(body.routing !== undefined && { routing: body.routing }),
  };
}

export const NO_RESTRICTIONS = {
  models: null,
  endpoints: null,
  trustedProviders: null,
  regions: null,
  tiers: null,
  limits: null,
  noTrack: false,
  resume: false,
  startWaitMs: null,
  routing: null,
};

interface RestrictionRow {
  models: string[] | null;
  endpoints: string[] | null;
  trustedProviders: string[] | null;
  regions: string[] | null;
  tiers: string[] | null;
  limits: Limits | null;
  noTrack: boolean;
  resume: boolean;
  startWaitMs: number | null;
  routing: OwnRouting | null;
}

export function restrictionView(row: RestrictionRow) {
  return {
    models: row.models,
    endpoints: row.endpoints,
    trusted_providers: row.trustedProviders,
    regions: row.regions,
    tiers: row.tiers,
    limits: row.limits,
    no_track: row.noTrack,
    resume: row.resume,
    start_wait_ms: row.startWaitMs,
    routing: row.routing,
  };
}

export const restrictionsView = restrictionsSchema.extend(grantsSchema.shape).extend(servingOptionsSchema.shape);

export function isoTime(ms: number | null): string | null {
  return ms === null ? null : rfc3339(ms);
}

export const listSchema = (item: z.ZodType) =>
  z.object({ object: z.literal('list'), data: z.array(item), has_more: z.boolean() });

type Table = SQLiteTable & { createdAt: SQLiteColumn; id: SQLiteColumn };

/** Reads one page of `table`, newest first. `view` converts each row for the response. */
export async function readPage<T extends Table, V>(
  env: Pick<Env, 'DB'>,
  table: T,
  page: PageQuery,
  where: SQL | undefined,
  view: (row: T['$inferSelect']) => V,
) {
  const rows = await queryOrUnavailable(
    database(env)
      .select()
      .from(table as SQLiteTable)
      .where(and(where, olderThan(table, page)))
      .orderBy(desc(table.createdAt), desc(table.id))
      .limit(page.limit + 1),
  );
  if (rows.length === 0) await requireAfter(env, table, page);
  return listPage(
    rows.map((row) => view(row)),
    page,
  );
}

/** Settings of the whole gateway. */
import { eq } from 'drizzle-orm';
import type { BatchItem } from 'drizzle-orm/batch';
import * as z from 'zod';
import { membershipSchema } from '../../shared/gossip/index.ts';
import { database } from '../accounts/database.ts';
import { fileLimitsSchema } from '../accounts/file-limits.ts';
import { limitsSchema } from '../accounts/limits/limits.ts';
import { issuersSchema } from '../accounts/login/oidc-config.ts';
import { queueSchema } from '../accounts/queue-settings.ts';
import { maxRetriesSchema, retryShareSchema } from '../accounts/retry-settings.ts';
import { routingSchema } from '../accounts/routing-settings.ts';
import { settings } from '../accounts/schema.ts';
import { readGatewaySettings, versionSchema } from '../accounts/settings.ts';
import type { Env } from '../env.ts';
import { httpUrlSchema } from '../http/schema-parts.ts';
import { applyChange } from './change.ts';
import { policySchema } from './fields.ts';
import { type AdminCall, type AdminRoute, route } from './route.ts';

const patchSchema = z.strictObject({
  /** Providers trusted by requests that name none; null: what the environment says. */
  default_trust: z.enum(['admitted', 'marked']).nullable().optional(),
  /** Where browsers reach this gateway: identity providers send them back there. */
  public_url: httpUrlSchema.nullable().optional(),
  /** Identity providers whose people may log in; null or empty: none. */
  oidc: issuersSchema.nullable().optional(),
  /** Waiting for a node where none is free; what is left out of it is the default. */
  queue: queueSchema.nullable().optional(),
  /** What all keys of a person share, where the person has no limits of their own; null: nothing. */
  user_limits: limitsSchema.nullable().optional(),
  /** What files and batches of one project may be at a time; what is left out of it is the default. */
  files: fileLimitsSchema.nullable().optional(),
  /** The policy and the time-outs of models that have none of their own. */
  routing: routingSchema.extend({ policy: policySchema.optional() }).nullable().optional(),
  /** Attempts after the first, where a model has no number of its own. */
  max_retries: maxRetriesSchema.nullable().optional(),
  /** Retries as a share of all requests; beyond it a failure is told at once. */
  retry_share: retryShareSchema.nullable().optional(),
  /** How fast silent nodes are found and how long those that LEFT are shown; what is left out of it is the default. */
  membership: membershipSchema.nullable().optional(),
  /** Agents of an older version, and those that do not say theirs, are not admitted; null: all are. */
  minimum_agent_version: versionSchema.nullable().optional(),
});
const settingsSchema = z.object({
  object: z.literal('settings'),
  default_trust: z.enum(['admitted', 'marked']),
  public_url: z.string().nullable(),
  oidc: issuersSchema,
  queue: queueSchema,
  user_limits: limitsSchema,
  files: fileLimitsSchema,
  routing: routingSchema,
  max_retries: z.number(),
  retry_share: z.number(),
  membership: membershipSchema,
  minimum_agent_version: z.string().nullable(),
});

export const settingsRoutes: readonly AdminRoute[] = [
  route({
    role: 'operator',
    method: 'get',
    path: '/settings',
    summary: 'Settings of the whole gateway.',
    answer: settingsSchema,
    run: ({ env }) => read(env),
  }),
  route({
    role: 'operator',
    method: 'patch',
    path: '/settings',
    summary: 'Change settings of the whole gateway; what is left out stays, null is the default.',
    body: patchSchema,
    answer: settingsSchema,
    run: patch,
  }),
];

async function read(env: Env): Promise<z.infer<typeof settingsSchema>> {
  const { defaultTrust, publicUrl, oidc, queue, userLimits, files, routing, retries, membership, minimumAgentVersion } =
    await readGatewaySettings(env);
  const { maxRetries: max_retries, retryShare: retry_share } = retries;
  const read = {
    default_trust: defaultTrust,
    public_url: publicUrl ?? null,
    oidc,
    queue,
    user_limits: userLimits,
    files,
    routing,
    max_retries,
    retry_share,
    membership,
    minimum_agent_version: minimumAgentVersion ?? null,
  };
  return { object: 'settings', ...read };
}

async function patch(call: AdminCall<z.infer<typeof patchSchema>>): Promise<object> {
  const { env, body, now } = call;
  const before = await read(env);
  const db = database(env);
  const writes = Object.entries(body).flatMap(([name, value]): BatchItem<'sqlite'>[] => {
    if (value === undefined) return [];
    if (value === null) return [db.delete(settings).where(eq(settings.name, name))];
    const set = { value, updatedAt: now };
    return [
      db
        .insert(settings)
        .values({ name, ...set })
        .onConflictDoUpdate({ target: settings.name, set }),
    ];
  });
  if (writes.length === 0) return before;
  await applyChange(call, writes, { action: 'settings.update', object: 'settings', before, after: body });
  return read(env);
}

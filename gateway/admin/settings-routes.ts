/** Routes for the gateway's settings. */
import { eq } from 'drizzle-orm';
import type { BatchItem } from 'drizzle-orm/batch';
import * as z from 'zod';
import { membershipSchema } from '../../shared/gossip/index.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { sitesSchema } from '../../shared/slurm/site-profile.ts';
import { settings } from '../accounts/account-tables.ts';
import { database } from '../accounts/database.ts';
import { readGatewaySettings } from '../accounts/gateway-settings.ts';
import { issuersSchema } from '../accounts/login/oidc-config.ts';
import { readSites } from '../accounts/site-profiles.ts';
import { conversationsMib } from '../conversations/conversation-routes.ts';
import type { Env } from '../env.ts';
import { NOTIFICATIONS_NAME, readNotifications } from '../notifications/notification-object.ts';
import { parseSecrets } from '../platform/webhook-secrets.ts';
import { conversationsMibSchema } from '../settings/conversation-settings.ts';
import { fileLimitsSchema } from '../settings/file-limits.ts';
import { limitsSchema } from '../settings/limits-schema.ts';
import { type Notifications, notificationsSchema } from '../settings/notification-settings.ts';
import { peerLimitsSchema } from '../settings/peer-limits.ts';
import { pricesSchema } from '../settings/price-settings.ts';
import { queueSchema } from '../settings/queue-settings.ts';
import { routingSchema } from '../settings/routing-settings.ts';
import { statusPageSchema } from '../settings/status-settings.ts';
import { traceSchema } from '../settings/trace-settings.ts';
import { readStatusPage, STATUS_NAME } from '../status/status-object.ts';
import { type AdminCall, type AdminRoute, route } from './admin-route.ts';
import { applyChange } from './apply-change.ts';
import { policySchema } from './field-schemas.ts';
import { settingsPatchSchema } from './settings-patch-schema.ts';
import { readPrices } from './usage/statements.ts';

const patchSchema = settingsPatchSchema.extend({
  routing: routingSchema.extend({ policy: policySchema.optional() }).nullable().optional(),
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
  sites: sitesSchema,
  peer_limits: peerLimitsSchema,
  trace: traceSchema,
  prices: pricesSchema.nullable(),
  notifications: notificationsSchema,
  status_page: statusPageSchema.nullable(),
  conversations_mib: conversationsMibSchema,
});

export const settingsRoutes: readonly AdminRoute[] = [
  route({
    role: 'operator',
    method: 'get',
    path: '/settings',
    summary: 'Return the settings of the whole gateway.',
    answer: settingsSchema,
    run: ({ env }) => read(env),
  }),
  route({
    role: 'operator',
    method: 'patch',
    path: '/settings',
    summary: 'Change settings of the whole gateway. Absent settings stay unchanged; null restores the default.',
    body: patchSchema,
    answer: settingsSchema,
    run: patch,
  }),
];

async function read(env: Env): Promise<z.infer<typeof settingsSchema>> {
  const read = await readGatewaySettings(env);
  const { defaultTrust, publicUrl, oidc, queue, userLimits, files, routing, retries } = read;
  const { membership, minimumAgentVersion, peerLimits, trace } = read;
  const { maxRetries: max_retries, retryShare: retry_share } = retries;
  return {
    object: 'settings',
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
    sites: await readSites(env),
    peer_limits: peerLimits,
    trace,
    prices: (await readPrices(env)) ?? null,
    notifications: await readNotifications(env),
    status_page: (await readStatusPage(env)) ?? null,
    conversations_mib: await conversationsMib(env),
  };
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
  requireSenders(env, body.notifications);
  await applyChange(call, writes, { action: 'settings.update', object: 'settings', before, after: body });
  if (body.notifications !== undefined) await env.NOTIFICATIONS.getByName(NOTIFICATIONS_NAME).wake();
  if (body.status_page !== undefined) await env.STATUS.getByName(STATUS_NAME).wake();
  return read(env);
}

/** @throws ApiError 422 if the environment has no secret of a webhook or no mail server */
function requireSenders(env: Env, notifications: Notifications | null | undefined): void {
  if (notifications?.mail !== undefined && env.MAILER === undefined) {
    const message = "notifications.mail: the gateway's environment has no SMTP_URL.";
    throw new ApiError('unprocessable_content', message, { param: 'notifications' });
  }
  const secrets = parseSecrets(env.WEBHOOK_SECRETS);
  const without = notifications?.webhooks.find(({ url }) => secrets?.has(url) !== true);
  if (without === undefined) return;
  const message = `notifications: WEBHOOK_SECRETS in the gateway's environment has no secret for ${without.url}.`;
  throw new ApiError('unprocessable_content', message, { param: 'notifications' });
}

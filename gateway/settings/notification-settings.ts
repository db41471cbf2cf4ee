/** Targets of messages about events. */
import * as z from 'zod';
import { secureUrlSchema } from '../http/common-schemas.ts';

const WEBHOOKS_MAX = 8;

export const EVENT_TYPES = [
  'access.requested',
  'access.decided',
  'batch.ended',
  'key.expiring',
  'limit.reached',
  'node.lost',
] as const;
export type EventType = (typeof EVENT_TYPES)[number];

const webhookSchema = z.strictObject({
  /** Receives a POST for each event. Its secret is in the environment: WEBHOOK_SECRETS. */
  url: secureUrlSchema,
  /** Absent: all events. */
  events: z.array(z.enum(EVENT_TYPES)).min(1).max(EVENT_TYPES.length).optional(),
});
export type Webhook = z.infer<typeof webhookSchema>;

export const notificationsSchema = z.strictObject({
  webhooks: z
    .array(webhookSchema)
    .max(WEBHOOKS_MAX)
    .refine((all) => new Set(all.map(({ url }) => url)).size === all.length, 'must be different URLs')
    .default([]),
});
export type Notifications = z.infer<typeof notificationsSchema>;

/** Targets of messages about events. */
import * as z from 'zod';
import { emailSchema, secureUrlSchema } from '../http/common-schemas.ts';

const WEBHOOKS_MAX = 8;
const RECIPIENTS_MAX = 8;

export const EVENT_TYPES = [
  'access.requested',
  'access.decided',
  'batch.ended',
  'key.expiring',
  'limit.reached',
  'node.lost',
] as const;
export type EventType = (typeof EVENT_TYPES)[number];

/** Absent: all events. */
const eventsSchema = z.array(z.enum(EVENT_TYPES)).min(1).max(EVENT_TYPES.length).optional();

const webhookSchema = z.strictObject({
  /** Receives a POST for each event. Its secret is in the environment: WEBHOOK_SECRETS. */
  url: secureUrlSchema,
  events: eventsSchema,
});
export type Webhook = z.infer<typeof webhookSchema>;

/** Each recipient gets a message for each event. The server is in the environment: SMTP_URL. */
const mailSchema = z.strictObject({
  from: emailSchema,
  to: z.array(emailSchema).min(1).max(RECIPIENTS_MAX),
  events: eventsSchema,
});
export type MailSettings = z.infer<typeof mailSchema>;

export const notificationsSchema = z.strictObject({
  webhooks: z
    .array(webhookSchema)
    .max(WEBHOOKS_MAX)
    .refine((all) => new Set(all.map(({ url }) => url)).size === all.length, 'must be different URLs')
    .default([]),
  mail: mailSchema.optional(),
});
export type Notifications = z.infer<typeof notificationsSchema>;

/** The settings of the whole gateway, as requests change them. */
import * as z from 'zod';
import { membershipSchema } from '../../shared/gossip/index.ts';
import { sitesSchema } from '../../shared/slurm/site-profile.ts';
import { versionSchema } from '../accounts/gateway-settings.ts';
import { issuersSchema } from '../accounts/login/oidc-config.ts';
import { httpUrlSchema } from '../http/common-schemas.ts';
import { conversationsMibSchema } from '../settings/conversation-settings.ts';
import { fileLimitsSchema } from '../settings/file-limits.ts';
import { limitsSchema } from '../settings/limits-schema.ts';
import { notificationsSchema } from '../settings/notification-settings.ts';
import { peerLimitsSchema } from '../settings/peer-limits.ts';
import { pricesSchema } from '../settings/price-settings.ts';
import { queueSchema } from '../settings/queue-settings.ts';
import { maxRetriesSchema, retryShareSchema } from '../settings/retry-settings.ts';
import { routingSchema } from '../settings/routing-settings.ts';
import { statusPageSchema } from '../settings/status-settings.ts';
import { traceSchema } from '../settings/trace-settings.ts';

/** Absent: unchanged. Null: the default. The route also checks the name of the policy. */
export const settingsPatchSchema = z.strictObject({
  /** Providers that are trusted if a request names none; null: DEFAULT_TRUST in the environment decides. */
  default_trust: z.enum(['admitted', 'marked']).nullable().optional(),
  /** Public address of this gateway for browsers, to which identity providers send them back. */
  public_url: httpUrlSchema.nullable().optional(),
  /** Identity providers of users that may log in; null or empty: none. */
  oidc: issuersSchema.nullable().optional(),
  /** How requests wait for a free node; absent fields get the default. */
  queue: queueSchema.nullable().optional(),
  /** Limits that all keys of a user without individual limits share; null: no limits. */
  user_limits: limitsSchema.nullable().optional(),
  /** Quotas for the files and batches of one owner; absent fields get the default. */
  files: fileLimitsSchema.nullable().optional(),
  /** The policy and the timeouts. Settings of a model override them. */
  routing: routingSchema.nullable().optional(),
  /** Maximum attempts after the first. A model's own settings override this number. */
  max_retries: maxRetriesSchema.nullable().optional(),
  /** Maximum retries as a share of all requests. While the share is used up, failures are returned without a retry. */
  retry_share: retryShareSchema.nullable().optional(),
  /**
   * How fast nodes that do not answer probes are detected, and how long LEFT nodes are shown; absent fields get the
   * default.
   */
  membership: membershipSchema.nullable().optional(),
  /** Agents with an older or unknown version are not admitted; null: all versions are. */
  minimum_agent_version: versionSchema.nullable().optional(),
  /** What jobs of each cluster need, for `otela-agent sbatch`; by PROVIDER/CLUSTER or PROVIDER. */
  sites: sitesSchema.nullable().optional(),
  /** Limits of peer institutions at this institution's nodes, by name; null: none. */
  peer_limits: peerLimitsSchema.nullable().optional(),
  /** Which requests are in the workload trace; null: those of projects that enabled it. */
  trace: traceSchema.nullable().optional(),
  /** Webhooks that get events; null: none. */
  notifications: notificationsSchema.nullable().optional(),
  /** The public status page; null: there is none. */
  status_page: statusPageSchema.nullable().optional(),
  /** MiB for the conversations of each person; null: 0, the gateway keeps none. */
  conversations_mib: conversationsMibSchema.nullable().optional(),
  /** What usage costs, for statements; null: no prices. */
  prices: pricesSchema.nullable().optional(),
});

/** How much a peer institution may use this institution's nodes now. Gateways report it to their agents. */
import * as z from 'zod';
import { INSTITUTION_PATTERN } from '../routing/trusted-providers.ts';
import { PEER_PROJECT_PATTERN } from './readable-receipt.ts';

/** Maximum number of peer institutions that a gateway lists. */
export const PEERS_MAX = 64;
/** Maximum number of a peer institution's projects with limits. */
export const PEER_PROJECTS_MAX = 100;

/** The amounts that are limited by month. */
export const MONTHLY_AMOUNTS = ['requests_per_month', 'tokens_per_month', 'gpu_seconds_per_month'] as const;
export type MonthlyAmount = (typeof MONTHLY_AMOUNTS)[number];
const amount = z.enum(MONTHLY_AMOUNTS);

/** Part of a node's requests. */
export const shareSchema = z.number().min(0).max(1);
/** Requests of this institution have 0, and so do peer institutions without a priority. */
export const peerPrioritySchema = z.int().min(-10).max(0);

function bounded<K extends z.ZodString, V extends z.ZodType>(key: K, value: V, most: number) {
  return z.record(key, value).refine((record) => Object.keys(record).length <= most, `at most ${most} members`);
}

const projectPattern = z.string().regex(PEER_PROJECT_PATTERN);

const allowanceSchema = z.object({
  /** Part of a node's requests that the institution may have while requests wait at the node's engine; absent: all. */
  share: shareSchema.optional(),
  /** The same for single projects of the institution. */
  project_shares: bounded(projectPattern, shareSchema, PEER_PROJECTS_MAX).optional(),
  /**
   * While requests wait at the node's engine, the institution gets no further request of a node that has one of an
   * institution with a higher priority.
   */
  priority: peerPrioritySchema.optional(),
  /** The limit that the institution has reached this month; absent: none. */
  over: amount.optional(),
  /** The same for single projects of the institution. */
  projects: bounded(projectPattern, amount, PEER_PROJECTS_MAX).optional(),
});
export type PeerAllowance = z.infer<typeof allowanceSchema>;

/** By name of the peer institution. An institution that is not named has no limits. */
export const peerAllowancesSchema = bounded(z.string().regex(INSTITUTION_PATTERN), allowanceSchema, PEERS_MAX);
export type PeerAllowances = z.infer<typeof peerAllowancesSchema>;

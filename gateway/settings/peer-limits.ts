/** Limits of peer institutions at this institution's nodes. */
import * as z from 'zod';
import { idSchema } from '../../shared/lattice/node-record.ts';
import {
  type MONTHLY_AMOUNTS,
  PEER_PROJECTS_MAX,
  PEERS_MAX,
  peerPrioritySchema,
  shareSchema,
} from '../../shared/usage/peer-allowance.ts';
import { boundedRecord } from '../http/common-schemas.ts';

const amount = z.int().min(0).max(Number.MAX_SAFE_INTEGER).optional();

/** Per calendar month, UTC. */
const monthly = {
  requests_per_month: amount,
  tokens_per_month: amount,
  gpu_seconds_per_month: amount,
} satisfies Record<(typeof MONTHLY_AMOUNTS)[number], z.ZodType>;

const limitsOfPeerSchema = z.strictObject({
  /**
   * Part of each node's requests that the institution may have while requests wait at the node's engine. Without waiting
   * requests it may have more.
   */
  share: shareSchema.optional(),
  /**
   * While requests wait at a node's engine, an institution with a lower priority gets no further request of a node that
   * has one of a higher priority. Own requests have 0.
   */
  priority: peerPrioritySchema.optional(),
  ...monthly,
  /** Limits of single projects of the institution, by their ids there. */
  projects: boundedRecord(
    z.string().regex(/^[A-Za-z0-9_-]{1,64}$/),
    z.strictObject({ share: shareSchema.optional(), ...monthly }),
    PEER_PROJECTS_MAX,
  ).optional(),
});
export type LimitsOfPeer = z.infer<typeof limitsOfPeerSchema>;

export const peerLimitsSchema = boundedRecord(idSchema, limitsOfPeerSchema, PEERS_MAX);
export type PeerLimits = z.infer<typeof peerLimitsSchema>;

/** Operator settings with bounds: how fast silent nodes are detected, and how long nodes that LEFT are shown. */
import * as z from 'zod';
import { DEFAULT_OPTIONS, type GossipOptions } from './gossip-options.ts';

const HOUR_MS = 60 * 60_000;

/**
 * Settings that agents receive. Below half a second a probe would start before the previous one, with its detours, has
 * ended.
 */
const ofAgents = {
  /**
   * Interval of probes. An agent probes one peer per interval. A smaller value detects silent nodes sooner, and makes
   * the mesh send more.
   */
  probe_ms: z.int().min(500).max(60_000).default(DEFAULT_OPTIONS.probeMs),
  /** How long nodes that LEFT are shown, and the models they served are known. Cleanup runs once an hour. */
  retention_ms: z
    .int()
    .min(HOUR_MS)
    .max(30 * 24 * HOUR_MS)
    .default(24 * HOUR_MS),
};

export const agentMembershipSchema = z.object(ofAgents);
export type AgentFailureDetection = z.infer<typeof agentMembershipSchema>;

export const membershipSchema = z.strictObject({
  ...ofAgents,
  /** Time in which a node can reopen a closed tunnel before its peers are asked about it. */
  reconnect_ms: z.int().min(1_000).max(600_000).default(DEFAULT_OPTIONS.reconnectMs),
  /**
   * Minimum time between suspicion and eviction. It is up to 12 times as long if fewer nodes report that the session is
   * silent. If the node was only paused, it must answer within this time.
   */
  grace_ms: z.int().min(2_000).max(600_000).default(DEFAULT_OPTIONS.graceMinMs),
});
export type FailureDetectionSettings = z.infer<typeof membershipSchema>;

export const MEMBERSHIP_DEFAULTS: FailureDetectionSettings = membershipSchema.parse({});

/** The core's options that an operator sets. Agents decide no evictions, so the last two concern only gateways. */
export type TunableOptions = Partial<Pick<GossipOptions, 'probeMs' | 'reconnectMs' | 'graceMinMs'>>;

export function tunedOptions(settings: AgentFailureDetection | FailureDetectionSettings): TunableOptions {
  const own = 'grace_ms' in settings ? { reconnectMs: settings.reconnect_ms, graceMinMs: settings.grace_ms } : {};
  return { probeMs: settings.probe_ms, ...own };
}

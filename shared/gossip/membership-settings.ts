/** What an operator may set, with bounds: how fast silent nodes are found, and how long nodes that LEFT are shown. */
import * as z from 'zod';
import { DEFAULT_OPTIONS, type GossipOptions } from './options.ts';

const HOUR_MS = 60 * 60_000;

/** What agents are told. Below half a second a probe would begin before the last one, with its detours, has ended. */
const ofAgents = {
  /** An agent probes one peer in this time. If smaller, silent nodes are found sooner and the mesh sends more. */
  probe_ms: z.int().min(500).max(60_000).default(DEFAULT_OPTIONS.probeMs),
  /** Nodes that LEFT are shown, and the models they served are known, this long. Housekeeping comes once an hour. */
  retention_ms: z
    .int()
    .min(HOUR_MS)
    .max(30 * 24 * HOUR_MS)
    .default(24 * HOUR_MS),
};

export const agentMembershipSchema = z.object(ofAgents);
export type AgentMembership = z.infer<typeof agentMembershipSchema>;

export const membershipSchema = z.strictObject({
  ...ofAgents,
  /** A tunnel that closed has so long to come back before peers are asked about its node. */
  reconnect_ms: z.int().min(1_000).max(600_000).default(DEFAULT_OPTIONS.reconnectMs),
  /** Shortest time between suspicion and eviction; up to 12 times as long if fewer nodes agree. A paused node has so long to answer. */
  grace_ms: z.int().min(2_000).max(600_000).default(DEFAULT_OPTIONS.graceMinMs),
});
export type MembershipSettings = z.infer<typeof membershipSchema>;

export const MEMBERSHIP_DEFAULTS: MembershipSettings = membershipSchema.parse({});

/** The core's options that an operator sets. An agent decides no evictions, so the last two are for gateways alone. */
export type TunableOptions = Partial<Pick<GossipOptions, 'probeMs' | 'reconnectMs' | 'graceMinMs'>>;

export function tunedBy(settings: AgentMembership | MembershipSettings): TunableOptions {
  const own = 'grace_ms' in settings ? { reconnectMs: settings.reconnect_ms, graceMinMs: settings.grace_ms } : {};
  return { probeMs: settings.probe_ms, ...own };
}

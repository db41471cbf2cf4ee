import type { DepartureCause } from '../../shared/lattice/departure-cause.ts';

/** Counters of the registry object since it woke, for tests and operators. */
export interface RegistryCounters {
  sessions: number;
  snapshots: number;
  /** Calls by tunnel objects, and calls about agents that were killed. (The name is part of the stored metrics.) */
  words: number;
  /** Gossip messages from delegates. */
  messages: number;
  alarms: number;
  timers: number;
  /** Probes of tunnel objects. A probe wakes its object. */
  probes: number;
  /** Attempts that an engine completed after their requests had moved to another node. */
  doubles: number;
  delegates: number;
  /** Nodes that left, by cause. */
  departures: Record<DepartureCause, number>;
  /** Where the issuer's key comes from. */
  issuer: 'environment' | 'own';
  issuerId: string;
  /** When the gateway's certificate ends; seconds since 1970. */
  certificateEnds: number;
  /** Clusters in which no node is evicted for now, because many of their nodes became suspected at the same time. */
  frozen: string[];
}

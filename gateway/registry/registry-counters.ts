import type { DepartureCause } from '../../shared/lattice/departure-cause.ts';

/** Counters of the registry object since it woke, for tests and operators. */
export interface RegistryCounters {
  sessions: number;
  snapshots: number;
  /** Calls by tunnel objects, and on behalf of agents that were killed. */
  words: number;
  /** From delegates. */
  messages: number;
  alarms: number;
  timers: number;
  /** Of tunnel objects, which wake for them. */
  probes: number;
  /** Attempts that an engine completed after their requests had moved to another node. */
  doubles: number;
  delegates: number;
  /** Nodes that left, by cause. */
  departures: Record<DepartureCause, number>;
  /** Origin of the issuer's key. */
  issuer: 'environment' | 'own';
  issuerId: string;
  /** End of the gateway's certificate; seconds since 1970. */
  certificateEnds: number;
  /** Clusters in which no node is evicted for now, because many of their nodes became suspect at the same time. */
  frozen: string[];
}

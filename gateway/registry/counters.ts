import type { DepartureCause } from '../../shared/lattice/departure.ts';

/** What the registry object was asked, and by whom, since it woke. For tests and operators. */
export interface RegistryCounters {
  sessions: number;
  snapshots: number;
  /** Calls of tunnel objects, and of agents that were killed. */
  words: number;
  /** From delegates. */
  messages: number;
  alarms: number;
  timers: number;
  /** Of tunnel objects, which they wake. */
  probes: number;
  /** Attempts that an engine completed although their requests had gone to another node. */
  doubles: number;
  delegates: number;
  /** Nodes that left, by cause. */
  departures: Record<DepartureCause, number>;
  /** Where the issuer's key is from. */
  issuer: 'environment' | 'own';
  issuerId: string;
  /** End of the gateway's certificate; seconds since 1970. */
  certificateEnds: number;
  /** Clusters without evictions for now, because so many of their nodes turned suspect at once. */
  frozen: string[];
}

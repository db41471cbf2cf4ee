import type { Cluster } from './cluster.ts';
import type { Job, Server } from './server.ts';

/** Input of a policy when a slot begins. */
export interface SlotStart {
  slot: number;
  slotS: number;
  /** Tasks that arrived in the previous slot, `arrived[origin][model]`; zeros in the first. */
  arrived: readonly (readonly number[])[];
  /** Tasks that the policy sent to a region in the previous slot, `routed[region][model]`. */
  routed: readonly (readonly number[])[];
  /** Electricity of all servers in the previous slot; absent: not measured. */
  costUsd?: number;
}

/** Decides where tasks go, and controls servers. It may keep state; runs never share one. */
export interface RegionPolicy {
  readonly name: string;
  /** Chooses a server for a task now; undefined holds the task until the next second, or until its deadline. */
  choose(job: Job, cluster: Cluster): Server | undefined;
  /** Called when a slot begins, to plan, to wake servers and to send them to sleep. */
  slot?(start: SlotStart, cluster: Cluster): void | Promise<void>;
  /** Called when a server has no work: it may get work from another server's queue. */
  idle?(server: Server, cluster: Cluster): void;
  /** Called once a second while tasks are held. */
  holding?(held: readonly Job[], cluster: Cluster): void;
}

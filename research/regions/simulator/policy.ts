import type { Cluster } from './cluster.ts';
import type { Job, Server } from './server.ts';

/** What a policy learns when a slot begins. */
export interface SlotStart {
  slot: number;
  slotS: number;
  /** Tasks that came in the slot before, `arrived[origin][model]`; zeros in the first. */
  arrived: readonly (readonly number[])[];
}

/** Decides where tasks go, and what servers do beside them. It may keep state; runs never share one. */
export interface RegionPolicy {
  readonly name: string;
  /** The server for a task now; undefined holds it until the next second, or until its deadline. */
  choose(job: Job, cluster: Cluster): Server | undefined;
  /** A slot begins: the time to plan, to wake servers and to send them to sleep. */
  slot?(start: SlotStart, cluster: Cluster): void | Promise<void>;
  /** A server has nothing to do now: it may be given work from another's queue. */
  idle?(server: Server, cluster: Cluster): void;
  /** Once a second while tasks are held. */
  holding?(held: readonly Job[], cluster: Cluster): void;
}

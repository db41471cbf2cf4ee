import type { ProcessRow } from './process-table.ts';

/** Called by a membership. */
export interface MembershipEvents {
  /** Called after each round with the other processes that run. */
  onProcesses(others: readonly ProcessRow[]): void;
  /** Called with alarms of objects that this process owns. */
  onAlarms(alarms: readonly { key: string; at: number }[]): void;
  /** Ends the objects of slots that this process no longer owns. */
  onLost(slots: ReadonlySet<number>): void;
  /** Ends objects after everything was stored, so that the slots can be given back. */
  release(slots: ReadonlySet<number>): Promise<void>;
  log(line: string): void;
}

/** The processes that run, and which of them owns the objects of a slot. */
export interface ProcessMembership {
  /** True if this process owns the slot. False for a slot that it is giving back. */
  owns(slot: number): boolean;
  /** Incarnation of the slot's owner, as far as this process knows. */
  ownerOf(slot: number): string | undefined;
  /** Call this before an object is used: after a pause, another process may own it. */
  current(): Promise<void> | undefined;
  /** Reads now which processes run. Never rejects. */
  now(): Promise<void>;
  /** Milliseconds since the database, or the process that has it, answered. */
  readonly silentMs: number;
  /** Processes that run, including this one. */
  readonly running: readonly ProcessRow[];
  /** Number of processes that run, including this one. */
  readonly size: number;
  /** Number of slots that this process owns. */
  readonly owned: number;
  join(): Promise<void>;
  /** A process has ended. */
  prove(incarnation: string): Promise<void>;
  close(): Promise<void>;
}

/** The account of a gateway, or of another agent, for its attempts at this node's engine. */
import type { OpenFrame } from '../../shared/wire/frames.ts';
import type { ReportedTimings, ReportedUsage } from '../../shared/wire/reported-usage.ts';

/** What an account keeps of an attempt. */
export type AccountedOpen = Pick<OpenFrame, 'requestId' | 'attempt' | 'receipt' | 'endpoint' | 'streaming'>;

export interface CallerAccount {
  /**
   * Why the caller gets no further attempt now; undefined if it gets one. `overloaded`: it may get one later.
   * `over_quota`: not in this month.
   */
  refusal(open: AccountedOpen): { code: 'overloaded' | 'over_quota'; message: string } | undefined;
  /** Call when an attempt begins. */
  begin(open: AccountedOpen): AttemptAccount;
}

export interface AttemptAccount {
  /** Call when the attempt has ended at an engine, before `end`. */
  report(usage: ReportedUsage, timings: ReportedTimings): void;
  /** Call when the engine is done with the attempt. Idempotent. */
  end(): void;
}

/** What callers keep about finished attempts, and what proves a report on a forgotten one. */

import type { OutboundAttempt } from '../attempts/outbound-attempt.ts';
import type { TokenBound } from '../attempts/token-bound.ts';
import type { ReportName } from '../wire/frames.ts';
import type { ReportedUsage } from '../wire/reported-usage.ts';

/** Usage of one attempt. Storing it twice has no effect. */
export interface UsageRecord extends ReportedUsage {
  requestId: string;
  attempt: number;
  session: string;
  /** The attempt's stream, unique within its session. A repeated report has the same number. */
  stream: number;
  /** The account that pays: set by the caller when it opened the attempt, opaque in transit. */
  receipt: string;
  /** Bytes of the answer that passed through the caller. */
  answerBytes: number;
  /** Milliseconds since the epoch. */
  at: number;
  /** What was requested, and the timings; absent if the caller forgot both. */
  course?: AttemptCourse;
  /** For a late report: when its proof expires. Milliseconds since the epoch. */
  expiresAt?: number;
  /** The same attempt may have been reported under another stream, after a lost object or a parked reader. */
  repeated: boolean;
}

export interface AttemptCourse {
  endpoint: number;
  streamed: boolean;
  /** The engine's status; 0 without a head; null if unknown. */
  status: number | null;
  /** Milliseconds since the opening; 0 without data; null if unknown. */
  firstMs: number | null;
  totalMs: number | null;
  /** Milliseconds of one GPU; see gpu-share.ts. Absent if the caller does not count them. */
  gpuMs?: number;
  /** How long the request had waited when this attempt was opened; absent if the caller does not say. */
  queueMs?: number;
}

/** An attempt that its caller has forgotten, as described by the proof in its report. */
export interface ProvenOpening {
  receipt: string;
  endpoint: number;
  streamed: boolean;
  /** Milliseconds since the epoch. */
  openedAt: number;
  /** Milliseconds since the epoch. */
  expiresAt: number;
  bound: TokenBound;
}

/**
 * How a caller that may forget its openings treats reports on them. Without it, the owner trusts the reports that it
 * passes in.
 */
export interface LateReports {
  /** The opening that the report proves; undefined: none. */
  opening(name: ReportName): ProvenOpening | undefined;
  /** The attempt if it is still running, under any number. */
  running(name: ReportName): OutboundAttempt | undefined;
  /** A stream number of the caller: a record is never stored under a number that a node chose. */
  nextStream(): number;
}

/** `unproven`: a late report on an attempt that was never opened. `over_bound`: a report above the possible usage. */
export type ReportAnomaly = 'unproven' | 'over_bound';

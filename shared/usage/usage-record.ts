/** Records of finished attempts, and the proof that a report on a forgotten attempt needs. */

import type { OutboundAttempt } from '../attempts/outbound-attempt.ts';
import type { TokenBound } from '../attempts/token-bound.ts';
import type { ReportName } from '../wire/frames.ts';
import type { ReportedUsage } from '../wire/reported-usage.ts';

/** Usage of one attempt. Storing it twice has no effect. */
export interface UsageRecord extends ReportedUsage {
  requestId: string;
  attempt: number;
  session: string;
  /** Number of the attempt's stream, unique within its session. A repeated report has the same number. */
  stream: number;
  /** The account that pays. Set by the caller when it opened the attempt; opaque to the node. */
  receipt: string;
  /** Bytes of the answer that the caller received. */
  answerBytes: number;
  /** When the attempt ended, in milliseconds since the epoch. */
  at: number;
  /** The kind of request and its timings; absent if the caller forgot both. */
  course?: AttemptCourse;
  /** For a late report: when its proof expires, in milliseconds since the epoch. */
  expiresAt?: number;
  /** True if the attempt may also be reported under another stream number, after a lost object or a parked reader. */
  repeated: boolean;
}

export interface AttemptCourse {
  endpoint: number;
  streamed: boolean;
  /** The engine's HTTP status; 0 if there was no response head; null if unknown. */
  status: number | null;
  /** Milliseconds from the opening to the first data; 0 if there was none; null if unknown. */
  firstMs: number | null;
  totalMs: number | null;
  /** GPU time in milliseconds of one GPU; see gpu-share.ts. Absent if the caller does not count it. */
  gpuMs?: number;
  /** Milliseconds that the request had waited when this attempt was opened; absent if the caller does not report it. */
  queueMs?: number;
}

/** An attempt that its caller has forgotten, as described by the proof in its report. */
export interface ProvenOpening {
  receipt: string;
  endpoint: number;
  streamed: boolean;
  /** When the attempt was opened, in milliseconds since the epoch. */
  openedAt: number;
  /** When the proof expires, in milliseconds since the epoch. */
  expiresAt: number;
  bound: TokenBound;
}

/**
 * How a caller that may forget its openings handles late reports. Without it, the settlement accepts every report that
 * it receives.
 */
export interface LateReports {
  /** Returns the opening that the report proves; undefined if it proves none. */
  opening(name: ReportName): ProvenOpening | undefined;
  /** Returns the attempt if it is still running, under any stream number. */
  running(name: ReportName): OutboundAttempt | undefined;
  /** Returns a stream number of the caller, because a record is never stored under a number that a node chose. */
  nextStream(): number;
}

/**
 * `unproven`: a late report on an attempt that was never opened. `over_bound`: a report above the attempt's upper
 * bound.
 */
export type ReportAnomaly = 'unproven' | 'over_bound';

/** Records of finished attempts, and the proof that is required with a report on a forgotten attempt. */

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
  /** Names the account that pays. The caller sets it when it opens the attempt; the node cannot read it. */
  receipt: string;
  /** Bytes of the answer that the caller received. */
  answerBytes: number;
  /** When the attempt ended, in milliseconds since the epoch. */
  at: number;
  /** The kind of request and its timings. Absent if the caller has forgotten them. */
  course?: AttemptCourse;
  /** For a late report: when its proof expires, in milliseconds since the epoch. */
  expiresAt?: number;
  /**
   * True if the attempt may also be reported under another stream number, because its object was lost or its reader
   * stalled.
   */
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

/** An attempt that its caller has forgotten, as the proof in its report describes it. */
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
 * How late reports are handled by a caller that may have forgotten the attempt's opening. Without it, the settlement
 * accepts every report.
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

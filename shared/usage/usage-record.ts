/** What askers keep of attempts that are over, and what proves a report of one that its asker forgot. */

import type { TokenBound } from '../upstream/token-bound.ts';
import type { UpstreamStream } from '../upstream/upstream-stream.ts';
import type { ReportName } from '../wire/frames.ts';
import type { ReportedUsage } from '../wire/usage.ts';

/** What one attempt used. Storing it twice is storing it once. */
export interface UsageRecord extends ReportedUsage {
  requestId: string;
  attempt: number;
  session: string;
  /** The attempt's stream, unique within its session: a report that is said again says it with the same number. */
  stream: number;
  /** Who pays: given by the asker when it opened the attempt, opaque on the way. */
  receipt: string;
  /** Bytes of the answer that came through the asker. */
  answerBytes: number;
  /** Milliseconds since the epoch. */
  at: number;
  /** What its opening said, and what came when; absent where its asker forgot both. */
  course?: Course;
  /** Of a late report: when its proof expires. Milliseconds since the epoch. */
  expiresAt?: number;
  /** The same attempt may have reported under another stream: a lost object, a parked reader. */
  repeated: boolean;
}

export interface Course {
  endpoint: number;
  streamed: boolean;
  /** The engine's; 0 where no head came; null where it is not known whether one came. */
  status: number | null;
  /** Since the opening; 0 where no data came; null where it is not known. */
  firstMs: number | null;
  totalMs: number | null;
  /** Milliseconds of one GPU: see gpu-share.ts. Absent where its asker does not count them. */
  gpuMs?: number;
  /** What the request had waited when this attempt was opened; absent where its asker does not say. */
  queueMs?: number;
}

/** An attempt that its asker has forgotten, as the proof in its report describes it. */
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

/** What an asker that may forget its openings makes of reports on them. Without it, its owner believes the reports that it hands over. */
export interface LateReports {
  /** The opening that the report proves; undefined where it proves none. */
  opening(name: ReportName): ProvenOpening | undefined;
  /** The attempt where it still runs, under whatever number. */
  running(name: ReportName): UpstreamStream | undefined;
  /** A stream number of the asker's own: a record is never stored under a number that a node chose. */
  nextStream(): number;
}

/** `unproven`: a late report of an attempt that was never opened. `over_bound`: a report above what the attempt can have used. */
export type ReportAnomaly = 'unproven' | 'over_bound';

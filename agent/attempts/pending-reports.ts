import { TransientMap } from '../../shared/collections/transient-map.ts';
import type { Frame, ReportName } from '../../shared/wire/frames.ts';
import { MEDIA_REPORTS, TIMED_REPORT_FRAME } from '../../shared/wire/protocol-constants.ts';
import { type ReportedTimings, type ReportedUsage, withoutMedia } from '../../shared/wire/reported-usage.ts';

/**
 * Maximum number of reports that are kept for a gateway that does not acknowledge them. At one request per second, they
 * cover almost three hours.
 */
const PENDING_MAX = 10_000;

export interface PendingReport {
  stream: number;
  usage: ReportedUsage;
  name: ReportName;
  timings: ReportedTimings;
}

/**
 * Usage reports that the gateway has not stored yet. They survive a lost socket or object: the agent repeats them, by
 * name.
 */
export class PendingReports {
  readonly #pending = new TransientMap<number, PendingReport>();
  readonly #log: (line: string) => void;

  constructor(log: (line: string) => void) {
    this.#log = log;
  }

  get size(): number {
    return this.#pending.size;
  }

  add(report: PendingReport): void {
    this.#pending.set(report.stream, report);
    const oldest = this.#pending.size > PENDING_MAX ? this.#pending.keys().next().value : undefined;
    if (oldest === undefined) return;
    this.#pending.delete(oldest);
    this.#log(`dropped a usage report: the gateway has not acknowledged any of the last ${PENDING_MAX}`);
  }

  /** Removes and returns the report of a stream. Undefined: there is none. */
  take(stream: number): PendingReport | undefined {
    const report = this.#pending.get(stream);
    this.#pending.delete(stream);
    return report;
  }

  settled(stream: number): void {
    this.#pending.delete(stream);
  }

  /**
   * All pending reports, as frames that a new socket or object understands.
   * @param reads the highest frame type that the other end reads
   */
  *again(reads: number): Iterable<Frame> {
    for (const report of this.#pending.values()) yield reportFrame(report, reads);
  }
}

/** @param reads the highest frame type that the other end reads */
export function reportFrame({ timings, usage, ...report }: PendingReport, reads: number): Frame {
  const timed = reads >= TIMED_REPORT_FRAME && { timings };
  return { type: 'report', ...report, usage: readableUsage(usage, reads), ...timed };
}

/** @param reads the highest frame type that the other end reads */
export function readableUsage(usage: ReportedUsage, reads: number): ReportedUsage {
  return reads >= MEDIA_REPORTS ? usage : withoutMedia(usage);
}

import { type AttemptFailure, attemptName } from '../attempts/attempt-request.ts';
import type { OutboundAttempt } from '../attempts/outbound-attempt.ts';
import { clampToBound } from '../attempts/token-bound.ts';
import { TransientMap } from '../collections/transient-map.ts';
import { endpointById } from '../openai/endpoints.ts';
import { endsBeforeEngine } from '../routing/retry-policy.ts';
import type { ReportName } from '../wire/frames.ts';
import { NO_USAGE, type ReportedTimings, type ReportedUsage } from '../wire/reported-usage.ts';
import { clampToAge } from './clamp-timings.ts';
import type { LateReports, ReportAnomaly, UsageRecord } from './usage-record.ts';

/** Time in which an agent must report on an attempt after the attempt has ended at the caller. */
const REPORT_WAIT_MS = 30_000;

/**
 * Maximum number of anomalies that are remembered until the next read. A node can send as many reports in a quarter of
 * a second.
 */
const ANOMALIES_MAX = 10_000;

/**
 * Maximum number of remembered attempts that used no tokens, so that a late report does not charge for them. The oldest
 * are forgotten first.
 */
const UNUSED_MAX = 10_000;

/**
 * Maximum number of ended attempts that wait for their report. If there are more, the oldest is settled with an
 * estimate.
 */
const WAITING_MAX = 10_000;

/**
 * Interval at which records that may be counted already are written. For such records the store searches all its rows.
 * This costs the same for one record as for thousands, so they are written together.
 */
const REPEATED_EVERY_MS = 1_000;

interface NamedReport {
  stream: number;
  usage: ReportedUsage;
  name: ReportName;
  timings?: ReportedTimings | undefined;
}

interface EndedAttempt {
  upstream: OutboundAttempt;
  aborted: boolean;
  until: number;
}

export function isNamed({ request }: OutboundAttempt, { requestId, attempt }: ReportName): boolean {
  return request.requestId === requestId && request.attempt === attempt;
}

/**
 * Turns reports into usage records. Every attempt that reached an engine becomes exactly one record. Its numbers are
 * the agent's if the agent reported, otherwise they are estimated from the data that passed through here.
 */
export class UsageSettlement {
  readonly #session: string;
  readonly #late: LateReports | undefined;
  readonly #wall: (() => number) | undefined;
  readonly #unused = new TransientMap<string, true>();
  #anomalies: ReportAnomaly[] = [];
  readonly #waiting = new TransientMap<number, EndedAttempt>();
  /**
   * Streams that were reported while the caller still reads the answer. The agent keeps the answer until the caller has
   * all of it.
   */
  readonly #reported = new Set<number>();
  #due: UsageRecord[] = [];
  /** True if one of the due records may have been counted already. */
  #repeated = false;
  #repeatedAt = 0;
  /** Streams that the agent may forget after the due records are stored. */
  #forget: number[] = [];

  /**
   * @param now in all calls: milliseconds of a monotonic clock
   * @param wall milliseconds since the epoch, for a record's date; without it a record's date is the `now` of the call
   */
  constructor(session: string, late?: LateReports, wall?: () => number) {
    this.#session = session;
    this.#wall = wall;
    this.#late = late;
  }

  get idle(): boolean {
    return this.#waiting.size === 0 && this.#due.length === 0 && this.#forget.length === 0;
  }

  /** Number of records that can be taken now. */
  get due(): number {
    return this.#repeated ? 0 : this.#due.length;
  }

  /** True if an ended attempt's report is still awaited. */
  awaits(stream: number): boolean {
    return this.#waiting.has(stream);
  }

  /** Call when the caller has finished with an attempt. */
  ended(outbound: OutboundAttempt, failure: AttemptFailure | undefined, now: number): void {
    if (this.#reported.delete(outbound.stream)) {
      this.#forget.push(outbound.stream);
      return;
    }
    if (failure !== undefined && endsBeforeEngine(failure)) {
      this.#forget.push(outbound.stream);
      return this.#usedNothing(outbound);
    }
    if (!outbound.opened) return;
    this.#waiting.set(outbound.stream, {
      upstream: outbound,
      aborted: failure === 'cancelled' || failure === 'hung',
      until: failure === 'gone' ? now : now + REPORT_WAIT_MS, // A killed agent reports nothing, so there is no wait.
    });
    if (this.#waiting.size <= WAITING_MAX) return;
    const oldest = this.#waiting.values().next().value;
    if (oldest !== undefined) this.#estimate(oldest, now);
  }

  #usedNothing({ request }: OutboundAttempt): void {
    this.#unused.set(attemptName(request), true);
    const oldest = this.#unused.size > UNUSED_MAX ? this.#unused.keys().next().value : undefined;
    if (oldest !== undefined) this.#unused.delete(oldest);
  }

  /** Call when the attempt continues under another number. It will be reported again under that number. */
  renumbered(stream: number): void {
    if (this.#reported.delete(stream)) this.#forget.push(stream);
  }

  /**
   * Call when the end of the attempt was requested again under another number. The report then also arrives under that
   * number.
   */
  moved(from: number, to: number): void {
    const ended = this.#waiting.get(from);
    if (ended === undefined) return;
    this.#waiting.delete(from);
    ended.upstream.stream = to;
    ended.upstream.repeated = true; // The report under the previous number may still arrive.
    this.#waiting.set(to, ended);
  }

  /** Handles a report on a stream of this object. `open`: the attempt, if it is still running. */
  report(stream: number, usage: ReportedUsage, open: OutboundAttempt | undefined, now: number): void {
    const outbound = open ?? this.#waiting.get(stream)?.upstream;
    this.#waiting.delete(stream);
    // This settlement does not know the stream. The agent will send the report again with the attempt's name.
    if (outbound === undefined) return;
    if (open !== undefined) this.#reported.add(stream);
    else this.#forget.push(stream);
    this.#addPending(this.#record(outbound, usage, now));
  }

  #addPending(record: UsageRecord): void {
    this.#due.push(record);
    this.#repeated ||= record.repeated;
  }

  /**
   * Call when the node no longer knows the stream. No report will arrive under this number, so the usage is estimated.
   */
  unknown(stream: number, now: number): void {
    const ended = this.#waiting.get(stream);
    if (ended !== undefined) this.#estimate(ended, now);
  }

  /** True if this settlement knows the attempt itself, so that a named report needs no proof. */
  knows(name: ReportName, open: OutboundAttempt | undefined): boolean {
    return (
      (open !== undefined && isNamed(open, name)) ||
      this.#unused.has(attemptName(name)) ||
      this.#ended(name) !== undefined
    );
  }

  #ended(name: ReportName): OutboundAttempt | undefined {
    for (const { upstream: outbound } of this.#waiting.values()) if (isNamed(outbound, name)) return outbound;
    return undefined;
  }

  /**
   * Handles a report with the attempt's name, which was sent because its object or socket may be lost. The attempt may
   * wait under another stream number. `open`: the attempt that continues under the report's number, if any.
   */
  named(report: NamedReport, open: OutboundAttempt | undefined, now: number): void {
    const { stream, usage, name } = report;
    const ended = this.#ended(name);
    if (ended !== undefined) this.#waiting.delete(ended.stream);
    if (open !== undefined && isNamed(open, name)) {
      open.repeated = true;
      // The rest of the answer has not arrived yet, so the agent must not forget the answer.
      return this.report(stream, usage, open, now);
    }
    this.#forget.push(stream);
    if (ended !== undefined) return this.#addPending({ ...this.#record(ended, usage, now), repeated: true });
    if (this.#unused.has(attemptName(name))) return;
    if (this.#late === undefined) this.#acceptReport(stream, usage, name, now);
    else this.#prove(this.#late, report, now);
  }

  #acceptReport(stream: number, usage: ReportedUsage, name: ReportName, now: number): void {
    this.#addPending({
      ...usage,
      ...name,
      stream,
      session: this.#session,
      answerBytes: 0,
      at: this.#date(now),
      repeated: true,
    });
  }

  /**
   * Records a late report. The proof describes the opening, and the agent's report describes the rest; values that the
   * report omits stay unknown.
   */
  #prove(late: LateReports, { usage, name, timings }: NamedReport, now: number): void {
    const opening = late.opening(name);
    if (opening === undefined) return this.#note('unproven');
    const running = late.running(name);
    if (running !== undefined) {
      running.repeated = true; // The report under the attempt's current number must not be counted in addition.
      return this.report(running.stream, usage, running, now);
    }
    const { receipt, endpoint, streamed, expiresAt, bound } = opening;
    const timed = clampToAge(timings, this.#date(now) - opening.openedAt);
    const cut = clampToBound(usage, bound, undefined, endpointById(endpoint)?.media);
    if (cut.over || timed.over) this.#note('over_bound');
    const { requestId, attempt } = name;
    const course = { endpoint, streamed, ...timed.timings };
    const what = { requestId, attempt, receipt, session: this.#session, stream: late.nextStream() };
    this.#addPending({ ...cut.usage, ...what, course, expiresAt, answerBytes: 0, at: this.#date(now), repeated: true });
  }

  #date(now: number): number {
    return this.#wall?.() ?? now;
  }

  #note(anomaly: ReportAnomaly): void {
    if (this.#anomalies.length < ANOMALIES_MAX) this.#anomalies.push(anomaly);
  }

  #estimate(ended: EndedAttempt, now: number): void {
    this.#waiting.delete(ended.upstream.stream);
    if (!ended.upstream.accepted) return; // The attempt was cancelled before the node acknowledged it.
    const usage = { ...NO_USAGE, completion: ended.upstream.events, estimated: true, aborted: ended.aborted };
    this.#addPending(this.#record(ended.upstream, usage, now));
  }

  #record(outbound: OutboundAttempt, reported: ReportedUsage, now: number): UsageRecord {
    const usage = this.#cut(outbound, reported);
    const { requestId, attempt, receipt } = outbound.request;
    const { stream, answerBytes, repeated } = outbound;
    const { endpoint, streaming: streamed, waitedMs: queueMs } = outbound.request;
    const { status, firstMs } = outbound;
    const course = {
      endpoint,
      streamed,
      status,
      firstMs,
      totalMs: now - outbound.openedAt,
      ...(outbound.gpuShare !== undefined && { gpuMs: Math.round(outbound.gpuShare.at(now)) }),
      ...(queueMs !== undefined && { queueMs }),
    };
    const record = { ...usage, requestId, attempt, receipt, stream, session: this.#session, answerBytes, course };
    return { ...record, at: this.#date(now), repeated };
  }

  #cut({ request: { bound, endpoint }, answerLength }: OutboundAttempt, reported: ReportedUsage): ReportedUsage {
    if (bound === undefined) return reported;
    const { usage, over } = clampToBound(reported, bound, answerLength, endpointById(endpoint)?.media);
    if (over) this.#note('over_bound');
    return usage;
  }

  /** Returns the anomalies in reports that were noticed since the last call. */
  takeAnomalies(): readonly ReportAnomaly[] {
    const taken = this.#anomalies;
    if (taken.length > 0) this.#anomalies = [];
    return taken;
  }

  /**
   * Returns the records to store now. After storing them, the caller sends `streams` to the agent, which may then
   * forget these streams. `last`: waits for no further report.
   */
  take(now: number, last = false): { records: UsageRecord[]; streams: number[] } {
    for (const ended of this.#waiting.values()) if (last || now >= ended.until) this.#estimate(ended, now);
    const since = now - this.#repeatedAt; // Negative if the clock was set back.
    if (this.#repeated && !last && since >= 0 && since < REPEATED_EVERY_MS) return { records: [], streams: [] };
    if (this.#repeated) this.#repeatedAt = now;
    const taken = { records: this.#due, streams: this.#forget };
    this.#due = [];
    this.#repeated = false;
    this.#forget = [];
    return taken;
  }
}

import type { GrantedLease } from '../../../shared/batch/granted-lease.ts';
import type { LeaseRun, PendingLine } from '../lease-run.ts';
import type { CallSize } from './call-size.ts';
import type { FunctionCode } from './function-starter.ts';

export type FunctionLease = GrantedLease & { function: NonNullable<GrantedLease['function']> };

/** Lines that end here within this time are not given to idle nodes: their requests would take as long. */
const SHARED_LEAST_MS = 2_000;

interface LeasedOptions {
  lease: FunctionLease;
  work: LeaseRun;
  code: FunctionCode;
  calls: CallSize;
  lines: readonly PendingLine[];
}

/** The lines of one lease that have not run yet, in calls. */
export class LeasedLines {
  readonly lease: FunctionLease;
  readonly work: LeaseRun;
  readonly code: FunctionCode;
  readonly calls: CallSize;
  /** Consecutive calls that ended the function's process. */
  crashes = 0;
  readonly #byLine: ReadonlyMap<number, PendingLine>;
  readonly #queue: PendingLine[];
  /** Number of lines that must run in calls of one line. */
  #alone = 0;
  /** Resolves when the files of ended calls are at the gateway. */
  #sending: Promise<unknown> = Promise.resolve();
  #running: { lines: number; sinceMs: number } | undefined;

  constructor({ lease, work, code, calls, lines }: LeasedOptions) {
    this.lease = lease;
    this.work = work;
    this.code = code;
    this.calls = calls;
    this.#byLine = new Map(lines.map((one) => [one.line, one]));
    this.#queue = [...lines];
  }

  /** Lines that wait. */
  get waiting(): readonly PendingLine[] {
    return this.#queue;
  }

  /** Milliseconds until all lines have run; undefined: no call of the function has ended yet. */
  leftMs(nowMs: number): number | undefined {
    const { lineMs } = this.calls;
    if (lineMs === undefined) return undefined;
    const { lines = 0, sinceMs = nowMs } = this.#running ?? {};
    return this.#queue.length * lineMs + Math.max(0, lines * lineMs - (nowMs - sinceMs));
  }

  /** Number of lines that can end within this time, by the duration of recent calls. */
  fitting(ms: number): number {
    const { lineMs } = this.calls;
    return lineMs === undefined || ms === Number.POSITIVE_INFINITY ? Number.POSITIVE_INFINITY : Math.floor(ms / lineMs);
  }

  /**
   * Takes the lines of the next call.
   * @param endsInMs time until the node's job ends: a call that is still running then is lost
   */
  begin(nowMs: number, endsInMs = Number.POSITIVE_INFINITY): PendingLine[] {
    const size = this.#alone > 0 ? 1 : Math.min(this.calls.size, this.fitting(endsInMs));
    const call = this.#queue.splice(0, Math.max(1, size));
    this.#running = { lines: call.length, sinceMs: nowMs };
    return call;
  }

  end(call: readonly PendingLine[], outcome: 'done' | 'raised' | 'broken'): void {
    this.#running = undefined;
    this.crashes = outcome === 'broken' ? this.crashes + 1 : 0;
    // A single line may have made the whole call fail, so run each of these lines in its own call.
    if (outcome !== 'done' && call.length > 1) {
      this.#queue.unshift(...call);
      this.#alone = call.length;
    } else this.#alone = Math.max(0, this.#alone - 1);
  }

  /** Results follow when `sent` resolves. */
  addAfter(sent: Promise<void>): void {
    this.#sending = Promise.allSettled([this.#sending, sent]);
  }

  /** Resolves when no result of ended calls is uncommitted. */
  async settled(): Promise<void> {
    await this.#sending;
    await this.work.settled();
  }

  /**
   * Takes out lines that idle nodes should run, and returns them. Keeps what the next call needs, and lines that end
   * soon.
   */
  share(keep: number, nowMs: number): PendingLine[] {
    if ((this.leftMs(nowMs) ?? Number.POSITIVE_INFINITY) < SHARED_LEAST_MS) return [];
    return this.#queue.splice(Math.max(keep, this.#alone, this.calls.size));
  }

  /** The gateway asks to run these lines again. */
  repeat(lines: readonly number[]): void {
    for (const line of lines) this.#queue.push(...[this.#byLine.get(line)].filter((one) => one !== undefined));
  }
}

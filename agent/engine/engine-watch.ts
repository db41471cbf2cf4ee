/** Probes the engine repeatedly and reports changes of its health. */
import { setTimeout as delay } from 'node:timers/promises';
import { type EngineHealth, nextHealth, nextProbeDelay, UNKNOWN_HEALTH } from './engine-health.ts';
import type { EngineProbeResult } from './engine-probe.ts';

interface WatchOptions {
  look(): Promise<EngineProbeResult>;
  onChange(health: EngineHealth): void;
  /** Called at intervals until the engine is ready for the first time. @param waitedMs milliseconds since the start */
  onWaiting(waitedMs: number, trouble: string): void;
  /** Milliseconds of a monotonic clock. */
  now(): number;
}

/**
 * Time until the first report. Later reports become rarer, because a 405B model loads for half an hour, and people read
 * the log.
 */
const FIRST_REPORT_MS = 10_000;
const REPORT_MAX_MS = 60_000;
/** Minimum time between two probes, even if requests ask for one. */
const PAUSE_MIN_MS = 250;

export class EngineWatch {
  #health: EngineHealth = UNKNOWN_HEALTH;
  readonly #options: WatchOptions;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  #wake: () => void = () => {};
  #since = 0;
  #nextReportMs = FIRST_REPORT_MS;

  constructor(options: WatchOptions) {
    this.#options = options;
  }

  get health(): EngineHealth {
    return this.#health;
  }

  /**
   * How long the engine has been probed without any answer, in milliseconds. Undefined if it has answered, or was not
   * probed yet.
   */
  get waitingMs(): number | undefined {
    return this.#running === undefined || this.#health.everReady ? undefined : this.#options.now() - this.#since;
  }

  /** Resets the health as if the engine had never answered. */
  forget(): void {
    this.#health = UNKNOWN_HEALTH;
    this.#since = this.#options.now();
    this.#nextReportMs = FIRST_REPORT_MS;
  }

  /** Starts the next probe without delay, because the known health may be wrong. */
  soon(): void {
    this.#wake();
  }

  open(): void {
    this.#running ??= this.#run();
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  /** Never rejects. */
  async #pause(ms: number): Promise<void> {
    const woken = new AbortController();
    this.#wake = () => woken.abort();
    const rest = (pauseMs: number, signal: AbortSignal) => delay(pauseMs, undefined, { signal }).catch(() => {});
    const least = Math.min(ms, PAUSE_MIN_MS);
    await rest(least, this.#stop.signal);
    await rest(ms - least, AbortSignal.any([this.#stop.signal, woken.signal]));
  }

  async #run(): Promise<void> {
    const { look, onChange, onWaiting, now } = this.#options;
    this.#since = now();
    for (let looks = 0; !this.#stop.signal.aborted; looks++) {
      const result = await look();
      if (this.#stop.signal.aborted) return;
      const before = this.#health;
      this.#health = nextHealth(before, result);
      if (changed(before, this.#health)) onChange(this.#health);
      const waited = now() - this.#since;
      if (!this.#health.everReady && waited >= this.#nextReportMs) {
        onWaiting(waited, this.#health.trouble ?? '');
        this.#nextReportMs = waited + Math.min(REPORT_MAX_MS, waited);
      }
      await this.#pause(nextProbeDelay(this.#health, looks));
    }
  }
}

function changed(before: EngineHealth, after: EngineHealth): boolean {
  return before.answering !== after.answering || JSON.stringify(before.models) !== JSON.stringify(after.models);
}

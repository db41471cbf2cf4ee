import type { StartTimer } from '../../../shared/timing/start-timer.ts';

interface Timer {
  at: number;
  everyMs: number | undefined;
  ring(): void;
}

/**
 * An event loop in virtual time. It can be kept from running: then its timers fire late, one after the other, as Node's
 * do.
 */
export class VirtualLoop {
  #now = 0;
  readonly #timers = new Set<Timer>();

  readonly now = () => this.#now;
  readonly after: StartTimer = (ms, ring) => this.#add(ms, undefined, ring);
  readonly every: StartTimer = (ms, ring) => this.#add(ms, ms, ring);

  get timers(): number {
    return this.#timers.size;
  }

  #add(ms: number, everyMs: number | undefined, ring: () => void): () => void {
    const timer = { at: this.#now + ms, everyMs, ring };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  /** The process runs for `ms`, each timer on time. */
  run(ms: number): void {
    const end = this.#now + ms;
    for (let next = this.#next(end); next !== undefined; next = this.#next(end)) {
      this.#now = Math.max(this.#now, next.at);
      this.#ring(next);
    }
    this.#now = end;
  }

  /** The process is paused for `ms`. Each timer that is due then fires once. */
  stand(ms: number): void {
    this.#now += ms;
    for (const timer of [...this.#timers].filter(({ at }) => at <= this.#now).sort((a, b) => a.at - b.at))
      if (this.#timers.has(timer)) this.#ring(timer);
  }

  /** Runs `runMs` of every `ofMs`, for `ms`. */
  starve(ms: number, runMs: number, ofMs: number): void {
    for (let passed = 0; passed < ms; passed += ofMs) {
      this.run(runMs);
      this.stand(ofMs - runMs);
    }
  }

  #next(end: number): Timer | undefined {
    let next: Timer | undefined;
    for (const timer of this.#timers) if (timer.at <= end && (next === undefined || timer.at < next.at)) next = timer;
    return next;
  }

  #ring(timer: Timer): void {
    if (timer.everyMs === undefined) this.#timers.delete(timer);
    else timer.at = this.#now + timer.everyMs;
    timer.ring();
  }
}

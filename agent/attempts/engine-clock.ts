import type { ReportedTimings } from '../../shared/wire/reported-usage.ts';

/** Measures how long the engine takes for one request. Pure: the caller gives the time, in milliseconds. */
export class EngineClock {
  #startedAt: number | undefined;
  /** From the start to the first byte of the response's body; 0 before that. */
  #firstMs = 0;

  start(now: number): void {
    this.#startedAt = now;
  }

  /** Milliseconds since the engine got the request; 0 before that. */
  elapsed(now: number): number {
    return this.#startedAt === undefined ? 0 : now - this.#startedAt;
  }

  /** Call at the first byte of the response's body. @returns milliseconds to it, at least 1 */
  firstByte(now: number): number {
    this.#firstMs = Math.max(1, Math.round(this.elapsed(now)));
    return this.#firstMs;
  }

  /** True if a byte of the body arrived. Engines send the head of a stream long before its first token. */
  get hasByte(): boolean {
    return this.#firstMs > 0;
  }

  /** @param status of the engine's response; 0 if there was none */
  report(status: number, now: number): ReportedTimings {
    const totalMs = Math.round(this.elapsed(now));
    return { status, firstMs: this.#firstMs, totalMs: Math.max(this.#firstMs, totalMs) };
  }
}

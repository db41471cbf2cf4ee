import type { EngineLoad } from '../../shared/routing/node-load.ts';

/** Limits of a node; undefined: no limit. */
export interface EngineLimits {
  /** Concurrent requests at the engine, running or waiting there. */
  maxRunning?: number | undefined;
  /** Requests that wait inside the engine. */
  maxWaiting?: number | undefined;
}

/**
 * Default of the requests that may wait inside an engine: enough to refill a batch while the next requests are on their
 * way, and few enough that the other requests wait at the gateway, which has a fair queue.
 */
export const MAX_WAITING = 8;

/**
 * Decides when an engine is saturated. Engines report their running and waiting requests only at intervals. The number
 * that ran while others waited is the engine's batch size. With it, the number of requests since then shows how many
 * wait.
 */
export class Saturation {
  /** Undefined: no request has ever waited, or more ran since. */
  #batch: number | undefined;

  /** The engine's own report. */
  observe({ running, waiting }: EngineLoad): void {
    if (waiting > 0) this.#batch = running;
    else if (this.#batch !== undefined && running > this.#batch) this.#batch = undefined;
  }

  /** Splits the number of requests at the engine. */
  split(total: number): { running: number; waiting: number } {
    const running = Math.min(total, this.#batch ?? total);
    return { running, waiting: total - running };
  }

  /** Why it accepts no more; undefined: it does. */
  full(total: number, { maxRunning, maxWaiting }: EngineLimits): string | undefined {
    if (maxRunning !== undefined && total >= maxRunning) return `${total} requests are at the engine already`;
    if (maxWaiting === undefined) return undefined;
    const { waiting } = this.split(total + 1);
    return waiting > maxWaiting ? `${waiting - 1} requests wait at the engine already` : undefined;
  }
}

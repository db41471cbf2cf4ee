import type { EngineLoad } from '../../shared/routing/node-load.ts';

/** Limits of concurrent requests at an engine; undefined means no limit. */
export interface EngineLimits {
  /** Maximum number of requests at the engine, running or waiting there. */
  maxRunning?: number | undefined;
  /** Maximum number of requests that wait inside the engine. */
  maxWaiting?: number | undefined;
}

/**
 * Default of `maxWaiting`. It is enough to refill a batch while the next requests are on their way. It is small, so
 * that further requests wait at the gateway, which has a fair queue.
 */
export const MAX_WAITING = 8;

/**
 * Decides when an engine is saturated. Engines report their running and waiting requests only at intervals. If requests
 * wait, the number of running ones is the engine's batch size. With it, this class splits any number of requests into
 * running and waiting ones.
 */
export class Saturation {
  /** The engine's batch size. Undefined: no request has ever waited, or more requests ran since. */
  #batch: number | undefined;

  /** Takes a reading of the engine's metrics. */
  observe({ running, waiting }: EngineLoad): void {
    if (waiting > 0) this.#batch = running;
    else if (this.#batch !== undefined && running > this.#batch) this.#batch = undefined;
  }

  /** Splits the number of requests at the engine into running and waiting ones. */
  split(total: number): { running: number; waiting: number } {
    const running = Math.min(total, this.#batch ?? total);
    return { running, waiting: total - running };
  }

  /** Why the engine should get no more requests; undefined if it may get more. */
  full(total: number, { maxRunning, maxWaiting }: EngineLimits): string | undefined {
    if (maxRunning !== undefined && total >= maxRunning) return `the engine already has ${total} requests`;
    if (maxWaiting === undefined) return undefined;
    const { waiting } = this.split(total + 1);
    return waiting > maxWaiting ? `${waiting - 1} requests already wait in the engine` : undefined;
  }
}

import type { EngineLoad } from '../../shared/routing/load.ts';

/** What a node takes; undefined: no limit. */
export interface EngineLimits {
  /** Requests at the engine at once, running or waiting there. */
  maxRunning?: number | undefined;
  /** Requests that wait inside the engine. */
  maxWaiting?: number | undefined;
}

/**
 * Requests that may wait inside an engine by default. Enough to refill a batch while the next requests are on their way. Few enough
 * that the other requests wait at the gateway, whose queue is fair.
 */
export const MAX_WAITING = 8;

/**
 * When an engine has enough to do. Engines tell how many they run and how many wait, but only now and then; what they ran while
 * others waited is what they can run, and tells of what came since how much of it waits.
 */
export class Saturation {
  /** Undefined: no request has ever waited, or more ran since. */
  #batch: number | undefined;

  /** The engine's own word. */
  observe({ running, waiting }: EngineLoad): void {
    if (waiting > 0) this.#batch = running;
    else if (this.#batch !== undefined && running > this.#batch) this.#batch = undefined;
  }

  /** Of so many requests at the engine. */
  split(total: number): { running: number; waiting: number } {
    const running = Math.min(total, this.#batch ?? total);
    return { running, waiting: total - running };
  }

  /** Why it takes no more; undefined where it does. */
  full(total: number, { maxRunning, maxWaiting }: EngineLimits): string | undefined {
    if (maxRunning !== undefined && total >= maxRunning) return `${total} requests are at the engine already`;
    if (maxWaiting === undefined) return undefined;
    const { waiting } = this.split(total + 1);
    return waiting > maxWaiting ? `${waiting - 1} requests wait at the engine already` : undefined;
  }
}

/** The agent's view of its engine's health after a series of probes. Pure: the time and the results are arguments. */
import type { ServedModel } from '../../shared/lattice/node-record.ts';
import type { EngineProbeResult } from './engine-probe.ts';

export interface EngineHealth {
  /**
   * True if a probe has found the engine ready at least once. Only then does a refused connection mean that the engine
   * was lost.
   */
  everReady: boolean;
  /** True if requests may be sent to it now. */
  answering: boolean;
  models: ServedModel[];
  /** Consecutive probes that found the port closed. */
  refusals: number;
  /** Message of the last probe that returned no models. */
  trouble?: string;
}

export const UNKNOWN_HEALTH: EngineHealth = { everReady: false, answering: false, models: [], refusals: 0 };

/**
 * Refused connections after which the engine counts as loading again. A single one may be due to a full listen queue.
 */
const REFUSALS_UNTIL_LOADING = 2;

export function nextHealth(health: EngineHealth, result: EngineProbeResult): EngineHealth {
  switch (result.kind) {
    case 'models':
      return { everReady: true, answering: true, models: result.models, refusals: 0 };
    case 'loading':
      return { ...health, answering: false, models: result.models, refusals: 0, trouble: 'it is loading its model' };
    case 'unknown':
      // An engine that is too busy to answer still serves, so `answering` does not change.
      return { ...health, refusals: 0, trouble: result.reason };
    case 'refused': {
      const refusals = health.refusals + 1;
      const lost = health.everReady && refusals >= REFUSALS_UNTIL_LOADING;
      return {
        everReady: health.everReady,
        answering: health.answering && !lost,
        models: lost ? health.models.map((model) => ({ ...model, state: 'loading' as const })) : health.models,
        refusals,
        trouble: result.where === undefined ? 'nothing listens there yet' : `nothing listens at ${result.where} yet`,
      };
    }
  }
}

const START_MS = 250;
const START_MAX_MS = 1000;
const STEADY_MS = 3000;

/**
 * Milliseconds until the next probe. Short while the engine starts, because each second of delay wastes a GPU-second.
 */
export function nextProbeDelay(health: EngineHealth, looks: number): number {
  if (health.answering) return health.refusals > 0 ? START_MS : STEADY_MS;
  return Math.min(START_MAX_MS, START_MS * 1.1 ** looks);
}

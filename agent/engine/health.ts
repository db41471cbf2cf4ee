/** What the agent believes about its engine after a series of looks. Pure: the clock and the looks are handed in. */
import type { ServedModel } from '../../shared/lattice/node.ts';
import type { EngineProbeResult } from './probe.ts';

export interface EngineHealth {
  /** It has answered with its models at least once: only then is a refused connection a loss. */
  everReady: boolean;
  /** Requests may go to it now. */
  answering: boolean;
  models: ServedModel[];
  /** Looks in a row that found the port closed. */
  refusals: number;
  /** What the last look that showed no models said. */
  trouble?: string;
}

export const UNKNOWN_HEALTH: EngineHealth = { everReady: false, answering: false, models: [], refusals: 0 };

/** One refused connection can be a listen queue that was full for a moment. */
const REFUSALS_UNTIL_LOADING = 2;

export function nextHealth(health: EngineHealth, result: EngineProbeResult): EngineHealth {
  switch (result.kind) {
    case 'models':
      return { everReady: true, answering: true, models: result.models, refusals: 0 };
    case 'loading':
      return { ...health, answering: false, models: result.models, refusals: 0, trouble: 'it loads its model' };
    case 'unknown':
      // Unknown is not gone: an engine too busy to answer is still the one that serves.
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

/** How long to wait before the next look: quick while it starts, for every second of it is a GPU-second. */
export function nextProbeDelay(health: EngineHealth, looks: number): number {
  if (health.answering) return health.refusals > 0 ? START_MS : STEADY_MS;
  return Math.min(START_MAX_MS, START_MS * 1.1 ** looks);
}

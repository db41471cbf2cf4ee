import type { Site } from '../../scheduler/assignment/types.ts';
import { weightBytes } from '../../scheduler/roofline/model-deployment.ts';
import type { DeploymentPlan } from './deployment-plan.ts';
import { type PlacedReplica, place } from './placement.ts';
import { shardMoves } from './shards.ts';
import { greedyTransfers, H100_LINKS, type Links, type TransferPlan } from './transfer.ts';

/** How weights reach the GPUs that need them. */
export type SwitchMethod =
  /** The engine stops and starts: weights from storage, then warm-up. */
  | 'reload'
  /** GPUs send each other the shards that they lack; the engine stays up. */
  | 'peer transfer'
  /**
   * vLLM's sleep mode, level 1: weights wait in host memory and return over PCIe. Only for a shape that existed before.
   */
  | 'sleep';

/**
 * Seconds in addition to the bytes. Process groups, graphs and memory pools are rebuilt; a stopped engine also imports
 * and profiles.
 */
const FIXED_S: Record<SwitchMethod, number> = { reload: 40, 'peer transfer': 6, sleep: 2 };
/** PCIe 5 × 16, one way. */
const PCIE_BYTES_PER_S = 50e9;

export interface SwitchCost {
  method: SwitchMethod;
  seconds: number;
  transfer: TransferPlan;
}

/**
 * Cost of changing from running replicas to a plan.
 *
 * @throws SchedulerError `infeasible` if the plan does not fit
 */
export function switchCost(
  from: readonly PlacedReplica[],
  to: DeploymentPlan,
  site: Site,
  method: SwitchMethod,
  links: Links = { ...H100_LINKS, gpusPerNode: site.gpusPerNode },
): SwitchCost {
  const { replicas } = place(to, from, site);
  const { model } = site;
  const bytes = weightBytes({ model, weights: model.storage.weights, tp: 1 });
  const moves = shardMoves(from, replicas);
  switch (method) {
    case 'peer transfer': {
      const transfer = greedyTransfers(moves, bytes, links);
      return { method, seconds: transfer.transfers.length === 0 ? 0 : FIXED_S[method] + transfer.seconds, transfer };
    }
    case 'reload': {
      const transfer = greedyTransfers(
        moves.map((move) => ({ ...move, sources: [] })),
        bytes,
        links,
      );
      return { method, seconds: transfer.transfers.length === 0 ? 0 : FIXED_S[method] + transfer.seconds, transfer };
    }
    case 'sleep': {
      const transfer = greedyTransfers(moves, bytes, links);
      const perGpu = new Map<number, number>();
      for (const { size, to: gpu } of transfer.transfers) perGpu.set(gpu, (perGpu.get(gpu) ?? 0) + size * bytes);
      const seconds = Math.max(0, ...perGpu.values()) / PCIE_BYTES_PER_S;
      return { method, seconds: transfer.transfers.length === 0 ? 0 : FIXED_S[method] + seconds, transfer };
    }
  }
}

/** A sequence on a replica that ends. */
interface RunningSequence {
  /** Tokens that have their keys and values in it. */
  tokens: number;
  /** Tokens of the response that are still to come. */
  remaining: number;
}

/**
 * Seconds in which the keys and values of an ending replica move while its sequences continue. Sequences that end by
 * then drain, and need no move (OServe §5.3). Tokens that the others add meanwhile also move. `tokenS`: seconds of a
 * token; `bytesPerS`: of all its links.
 */
export function kvMoveSeconds(
  sequences: readonly RunningSequence[],
  { tokenS, bytesPerToken, bytesPerS }: { tokenS: number; bytesPerToken: number; bytesPerS: number },
): number {
  let [moved, tokens, seconds] = [0, 0, 0];
  for (const one of [...sequences].sort((a, b) => b.remaining - a.remaining)) {
    const endsS = one.remaining * tokenS;
    if (endsS <= seconds) break;
    moved++;
    tokens += one.tokens;
    // These sequences' new tokens take a part of the links' bandwidth.
    const spare = bytesPerS - (moved * bytesPerToken) / tokenS;
    seconds = Math.min(endsS, spare > 0 ? (tokens * bytesPerToken) / spare : endsS);
  }
  return seconds;
}

import { kvBytesPerToken, weightBytes } from '../roofline/deployment.ts';
import { type Placed, place } from './placement.ts';
import { shardMoves } from './shards.ts';
import { greedyTransfers, H100_LINKS, type Links, type TransferPlan } from './transfer.ts';
import type { DeploymentPlan, Site } from './types.ts';

/** How weights get to where they are wanted. */
export type SwitchMethod =
  /** The engine stops and starts: weights from storage, then warm-up. */
  | 'reload'
  /** GPUs send each other the shards that they lack; the engine stays up. */
  | 'peer transfer'
  /** vLLM's sleep mode, level 1: weights wait in host memory and come back over PCIe. Only for a shape that was there before. */
  | 'sleep';

/** Seconds beside the bytes. Process groups, graphs and memory pools are made anew; a stopped engine also imports and profiles. */
const FIXED_S: Record<SwitchMethod, number> = { reload: 40, 'peer transfer': 6, sleep: 2 };
/** PCIe 5 × 16, one way. */
const PCIE_BYTES_PER_S = 50e9;

export interface SwitchCost {
  method: SwitchMethod;
  seconds: number;
  transfer: TransferPlan;
}

/** What it takes to go from replicas that run to a plan. Throws `infeasible` where the plan does not fit. */
export function switchCost(
  from: readonly Placed[],
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
export interface RunningSequence {
  tokens: number;
  remaining: number;
}

/** Buffers for keys and values on their way, as a share of them (OServe §5.3: 10 to 20 %). */
const BUFFER = 0.15;

export interface KvPlan {
  /** Sequences that end where they are. */
  drain: number[];
  /** Sequences whose keys and values move. */
  migrate: number[];
  /** Bytes of these, and of the buffers that receive them. */
  bytes: number;
  bufferBytes: number;
  /** Chunks end at layers, so that the receiver can begin with the first while the last one is under way. */
  chunkBytes: number;
  seconds: number;
}

/**
 * Which running sequences drain and which move: one that ends before its keys and values would have arrived is left alone. `tokenS`: seconds of a
 * token where it runs; `bytesPerS`: of the link.
 */
export function kvPlan(
  site: Site,
  sequences: readonly RunningSequence[],
  { tokenS, bytesPerS, drainS }: { tokenS: number; bytesPerS: number; drainS: number },
): KvPlan {
  const { model } = site;
  const perToken = kvBytesPerToken({ model, kv: model.storage.kv, tp: 1 });
  const layers = model.layers.reduce((sum, layer) => sum + layer.count, 0);
  const [drain, migrate]: [number[], number[]] = [[], []];
  let bytes = 0;
  for (const [i, { tokens, remaining }] of sequences.entries()) {
    const endsS = remaining * tokenS;
    if (endsS <= Math.max(drainS, (tokens * perToken) / bytesPerS)) drain.push(i);
    else {
      migrate.push(i);
      bytes += tokens * perToken;
    }
  }
  return {
    drain,
    migrate,
    bytes,
    bufferBytes: bytes * (1 + BUFFER),
    chunkBytes: bytes / Math.max(1, layers),
    seconds: bytes / bytesPerS,
  };
}

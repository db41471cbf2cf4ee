import type { PlacedReplica } from './placement.ts';

/** A part of the weights: layers by columns, both as shares of the whole, [from, to). */
export interface Shard {
  layers: readonly [number, number];
  columns: readonly [number, number];
}

/** A shard, the GPUs that hold it, and those that must receive it. */
export interface ShardMove {
  shard: Shard;
  /** Share of all weights. */
  size: number;
  sources: number[];
  /** GPUs that need it and do not have it. */
  targets: number[];
}

/** The part that a GPU of a replica holds: its stage's layers, its rank's columns. */
export function shardOf({ shape, gpus }: PlacedReplica, gpu: number): Shard | undefined {
  const at = gpus.indexOf(gpu);
  if (at < 0) return undefined;
  const [stage, rank] = [Math.floor(at / shape.tp), at % shape.tp];
  return {
    layers: [stage / shape.pp, (stage + 1) / shape.pp],
    columns: [rank / shape.tp, (rank + 1) / shape.tp],
  };
}

const within = (part: readonly [number, number], whole: readonly [number, number]): boolean =>
  part[0] >= whole[0] - 1e-9 && part[1] <= whole[1] + 1e-9;
const holds = (shard: Shard | undefined, part: Shard): boolean =>
  shard !== undefined && within(part.layers, shard.layers) && within(part.columns, shard.columns);

/**
 * Cuts the weights by the common refinement of all cuts before and after, so that every GPU holds each part completely
 * or not at all. Returns the parts that some GPU lacks, with the GPUs that have them. Layers count as fractions; a real
 * engine rounds them to whole layers.
 */
export function shardMoves(before: readonly PlacedReplica[], after: readonly PlacedReplica[]): ShardMove[] {
  const all = [...before, ...after];
  const cuts = (of: (one: PlacedReplica) => number): number[] => {
    const found = new Set<number>([0, 1]);
    for (const one of all) for (let i = 1; i < of(one); i++) found.add(i / of(one));
    // Equal fractions of different denominators differ in their last bit.
    return [...found].sort((a, b) => a - b).filter((cut, i, sorted) => i === 0 || cut - (sorted[i - 1] ?? 0) > 1e-9);
  };
  const [layers, columns] = [cuts(({ shape }) => shape.pp), cuts(({ shape }) => shape.tp)];
  const held = holdings(before);
  const wanted = holdings(after);
  const moves: ShardMove[] = [];
  for (let l = 1; l < layers.length; l++) {
    for (let c = 1; c < columns.length; c++) {
      const shard: Shard = {
        layers: [layers[l - 1] ?? 0, layers[l] ?? 1],
        columns: [columns[c - 1] ?? 0, columns[c] ?? 1],
      };
      const sources = held.filter(([, own]) => holds(own, shard)).map(([gpu]) => gpu);
      const targets = wanted.filter(([gpu, own]) => holds(own, shard) && !sources.includes(gpu)).map(([gpu]) => gpu);
      const size = (shard.layers[1] - shard.layers[0]) * (shard.columns[1] - shard.columns[0]);
      if (targets.length > 0) moves.push({ shard, size, sources, targets });
    }
  }
  return moves;
}

function holdings(replicas: readonly PlacedReplica[]): [gpu: number, shard: Shard][] {
  return replicas.flatMap((one) =>
    one.gpus.flatMap((gpu): [number, Shard][] => {
      const shard = shardOf(one, gpu);
      return shard === undefined ? [] : [[gpu, shard]];
    }),
  );
}

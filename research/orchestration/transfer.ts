import { LpProgram, solve } from '../../scheduler/solver/highs.ts';
import type { ShardMove } from './shards.ts';

/** Bytes/s that a GPU and a node can send, and the same to receive. */
export interface Links {
  gpusPerNode: number;
  /** NVLink of one GPU. */
  nvlinkBytesPerS: number;
  /** All network cards of one node together. */
  nodeBytesPerS: number;
  /** A shard that no GPU holds is read from storage, at this rate per node. */
  storageBytesPerS: number;
}

/**
 * H100: 400 GB/s one way of NVLink and 200 GB/s of InfiniBand per node, as in OServe §5; 2 GB/s per node from shared
 * storage.
 */
export const H100_LINKS: Links = {
  gpusPerNode: 8,
  nvlinkBytesPerS: 400e9,
  nodeBytesPerS: 200e9,
  storageBytesPerS: 2e9,
};

interface Transfer {
  /** Share of the weights. */
  size: number;
  /** -1: from storage. */
  from: number;
  to: number;
}

export interface TransferPlan {
  transfers: Transfer[];
  /** Seconds until the fullest link is done. */
  seconds: number;
  /** Name of that link: `NVLink out of GPU 3`. */
  bottleneck: string;
}

/** Bytes by link: out of and into each GPU and each node, and from storage into each node. */
class Loads {
  readonly #seconds = new Map<string, number>();
  readonly #links: Links;
  readonly #bytes: number;

  constructor(links: Links, bytes: number) {
    this.#links = links;
    this.#bytes = bytes;
  }

  /** Links of one transfer, with the seconds that it adds to each. */
  of({ size, from, to }: Transfer): [string, number][] {
    const { gpusPerNode, nvlinkBytesPerS, nodeBytesPerS, storageBytesPerS } = this.#links;
    const bytes = size * this.#bytes;
    const node = (gpu: number) => Math.floor(gpu / gpusPerNode);
    if (from < 0) return [[`storage into node ${node(to)}`, bytes / storageBytesPerS]];
    if (node(from) === node(to))
      return [
        [`NVLink out of GPU ${from}`, bytes / nvlinkBytesPerS],
        [`NVLink into GPU ${to}`, bytes / nvlinkBytesPerS],
      ];
    return [
      [`network out of node ${node(from)}`, bytes / nodeBytesPerS],
      [`network into node ${node(to)}`, bytes / nodeBytesPerS],
    ];
  }

  add(transfer: Transfer): void {
    for (const [link, seconds] of this.of(transfer)) this.#seconds.set(link, (this.#seconds.get(link) ?? 0) + seconds);
  }

  /** Seconds of the fullest of the transfer's links, including the transfer. */
  with(transfer: Transfer): number {
    return Math.max(...this.of(transfer).map(([link, seconds]) => (this.#seconds.get(link) ?? 0) + seconds));
  }

  get fullest(): [string, number] {
    return [...this.#seconds].reduce((most, one) => (one[1] > most[1] ? one : most), ['nothing', 0]);
  }
}

/**
 * Greedy plan (OServe Algorithm 2): large shards first. The source is in the same node if possible; among several, its
 * links would finish first. Loads count per device over all its transfers: the paper's pseudocode counts per pair, and
 * so ignores what a source sends to other GPUs.
 */
export function greedyTransfers(moves: readonly ShardMove[], weightBytes: number, links: Links): TransferPlan {
  const loads = new Loads(links, weightBytes);
  const transfers: Transfer[] = [];
  const node = (gpu: number) => Math.floor(gpu / links.gpusPerNode);
  for (const { size, sources, targets } of [...moves].sort((a, b) => b.size - a.size)) {
    // A GPU that just received the shard can send it to others.
    const have = [...sources];
    for (const to of targets) {
      const near = have.filter((gpu) => node(gpu) === node(to));
      const from = least(near.length > 0 ? near : have, (gpu) => loads.with({ size, from: gpu, to })) ?? -1;
      const transfer = { size, from, to };
      loads.add(transfer);
      transfers.push(transfer);
      have.push(to);
    }
  }
  const [bottleneck, seconds] = loads.fullest;
  return { transfers, seconds, bottleneck };
}

function least(items: readonly number[], of: (item: number) => number): number | undefined {
  let [best, value]: [number | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
  for (const item of items) {
    const own = of(item);
    if (own < value) [best, value] = [item, own];
  }
  return best;
}

/**
 * Lower bound of all plans: shards may be split over all sources. Receivers may relay, so every holder after the switch
 * also counts as a source.
 */
export async function transferBound(moves: readonly ShardMove[], weightBytes: number, links: Links): Promise<number> {
  const program = new LpProgram();
  const done = program.column(1, 0, Number.POSITIVE_INFINITY);
  const loads = new Loads(links, weightBytes);
  const terms = new Map<string, [number, number][]>();
  for (const { size, sources, targets } of moves) {
    for (const to of targets) {
      const from = sources.length > 0 ? [...sources, ...targets.filter((gpu) => gpu !== to)] : [-1];
      const columns = from.map((gpu) => {
        const column = program.column(0, 0, 1);
        for (const [link, seconds] of loads.of({ size, from: gpu, to }))
          terms.set(link, [...(terms.get(link) ?? []), [column, seconds]]);
        return column;
      });
      program.row(
        1,
        1,
        columns.map((column) => [column, 1]),
      );
    }
  }
  for (const of of terms.values()) program.row(Number.NEGATIVE_INFINITY, 0, [...of, [done, -1]]);
  if (terms.size === 0) return 0;
  const { objective } = await solve(program, { timeLimitS: 10, gap: 0, seed: 1, relaxed: true });
  return objective;
}

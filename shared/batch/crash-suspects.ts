/**
 * Finds the line of a batch that ends the engine of each node that runs it. If two leases of a chunk ended with an
 * engine, the chunk is suspected: a node then gets one of its lines at a time, so that the next crash has one suspect.
 */
import type { Bitmap } from './bitmap.ts';
import { type LeasedPart, openOf } from './lease-coverage.ts';

/** Number of leases of a chunk that may end with an engine before the chunk is suspected. */
const CRASHES_MAX = 2;

interface Chunk {
  id: number;
  lines: number;
  done: Bitmap;
  crashes?: number;
  leases: readonly (LeasedPart & { node: string; epoch: number })[];
}

/** A line, and the lease with which its node ran it and no other line of a suspected chunk. */
export interface SuspectLine {
  ref: { node: string; chunk: number; epoch: number };
  line: number;
}

export function isSuspect({ crashes = 0 }: { crashes?: number }): boolean {
  return crashes >= CRASHES_MAX;
}

/** True if the node has a lease of a suspected chunk. With two, a crash would have two suspects. */
export function runsSuspect(chunks: readonly Chunk[], node: string): boolean {
  return chunks.some((chunk) => isSuspect(chunk) && chunk.leases.some((lease) => lease.node === node));
}

/** Lines of suspected chunks, if the node runs no other line of their lease. */
export function suspectLines(chunks: readonly Chunk[], node: string): SuspectLine[] {
  return chunks.filter(isSuspect).flatMap((chunk) =>
    chunk.leases.flatMap((lease) => {
      const [line, ...others] = lease.node === node ? openOf(chunk, lease) : [];
      if (line === undefined || others.length > 0) return [];
      return [{ ref: { node, chunk: chunk.id, epoch: lease.epoch }, line }];
    }),
  );
}

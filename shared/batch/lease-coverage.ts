/** Which lines of a chunk have no result, and which of them no node has leased. */
import { type Bitmap, countBits, hasBit } from './bitmap.ts';

/** The lines of a lease, by their index in the chunk; absent: all lines of the chunk. */
export interface LeasedPart {
  lines?: readonly number[];
}

interface Chunk {
  lines: number;
  done: Bitmap;
  leases: readonly LeasedPart[];
}

/** Number of lines without a result. */
export function openCount(chunk: Chunk): number {
  return chunk.lines - countBits(chunk.done);
}

/** The lines of a lease that have no result. */
export function openOf({ lines, done }: Chunk, part: LeasedPart = {}): number[] {
  return (part.lines ?? Array.from({ length: lines }, (_, line) => line)).filter((line) => !hasBit(done, line));
}

/** The lines without a result that no node has leased. */
export function freeOf(chunk: Chunk): number[] {
  if (chunk.leases.some(({ lines }) => lines === undefined)) return [];
  const leased = new Set(chunk.leases.flatMap(({ lines = [] }) => lines));
  return openOf(chunk).filter((line) => !leased.has(line));
}

/** The number of lines of `freeOf`. */
export function freeCount(chunk: Chunk): number {
  if (chunk.leases.length === 0) return openCount(chunk);
  return chunk.leases.some(({ lines }) => lines === undefined) ? 0 : freeOf(chunk).length;
}

/** True if both leases have a line of the chunk that has no result. */
export function haveCommonLine(chunk: Chunk, one: LeasedPart, other: LeasedPart): boolean {
  const lines = new Set(openOf(chunk, one));
  return openOf(chunk, other).some((line) => lines.has(line));
}

/** The free lines of a chunk for a lease; undefined: the whole chunk. */
export function partOf(chunk: Chunk, most: number): number[] | undefined {
  return chunk.leases.length === 0 && openCount(chunk) <= most ? undefined : freeOf(chunk).slice(0, most);
}

/** A blob is cut into pieces of one size; the last is shorter. Each is verified and passed on by itself. */

/** Large enough that a request for one costs nothing, small enough that a node relays before it has much. */
export const PIECE_BYTES = 16 * 1024 * 1024;

export interface Cut {
  /** Bytes of the whole blob. */
  size: number;
  pieceBytes: number;
}

export function pieceCount({ size, pieceBytes }: Cut): number {
  return Math.ceil(size / pieceBytes);
}

/** Where piece `index` begins and how many bytes it has. @throws RangeError there is no such piece */
export function pieceSpan(cut: Cut, index: number): { offset: number; length: number } {
  if (!Number.isSafeInteger(index) || index < 0 || index >= pieceCount(cut))
    throw new RangeError(`piece ${index} of ${pieceCount(cut)}`);
  const offset = index * cut.pieceBytes;
  return { offset, length: Math.min(cut.pieceBytes, cut.size - offset) };
}

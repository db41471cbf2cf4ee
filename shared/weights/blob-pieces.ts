/** A blob is cut into pieces of equal size; the last is shorter. Each is verified and relayed separately. */

/** Large enough that a request for one costs little, small enough that a node relays early. */
export const PIECE_BYTES = 16 * 1024 * 1024;

interface PieceSpan {
  /** Bytes of the whole blob. */
  size: number;
  pieceBytes: number;
}

export function pieceCount({ size, pieceBytes }: PieceSpan): number {
  return Math.ceil(size / pieceBytes);
}

/** Offset and length of piece `index`. @throws RangeError if there is no such piece */
export function pieceSpan(cut: PieceSpan, index: number): { offset: number; length: number } {
  if (!Number.isSafeInteger(index) || index < 0 || index >= pieceCount(cut))
    throw new RangeError(`piece ${index} of ${pieceCount(cut)}`);
  const offset = index * cut.pieceBytes;
  return { offset, length: Math.min(cut.pieceBytes, cut.size - offset) };
}

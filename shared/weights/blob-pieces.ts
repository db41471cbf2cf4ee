/**
 * A blob is divided into pieces of equal size; the last one is shorter. Each piece is verified and sent on separately.
 */

/**
 * Large enough that a request for one piece costs little, small enough that a node can send on its first piece early.
 */
export const PIECE_BYTES = 16 * 1024 * 1024;

interface PieceSpan {
  /** Size of the whole blob in bytes. */
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

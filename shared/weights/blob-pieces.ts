/**
 * A blob is divided into pieces of equal size, except that the last piece may be shorter. Each piece is verified and
 * sent on separately.
 */

/**
 * Size of a piece. It is large enough that a request for one piece costs little, and small enough that a node can soon
 * send its first piece on.
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
    throw new RangeError(`there is no piece ${index}: the blob has ${pieceCount(cut)} pieces`);
  const offset = index * cut.pieceBytes;
  return { offset, length: Math.min(cut.pieceBytes, cut.size - offset) };
}

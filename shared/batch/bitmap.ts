/** One bit per line of a chunk, least significant bit first: line 0 is bit 0 of byte 0. Stored in this form. */
export type Bitmap = Uint8Array;

export function emptyBitmap(lines: number): Bitmap {
  return new Uint8Array(Math.ceil(lines / 8));
}

export function hasBit(bits: Bitmap, line: number): boolean {
  return ((bits[line >> 3] ?? 0) & (1 << (line & 7))) !== 0;
}

export function setBit(bits: Bitmap, line: number): void {
  bits[line >> 3] = (bits[line >> 3] ?? 0) | (1 << (line & 7));
}

export function countBits(bits: Bitmap): number {
  let count = 0;
  for (let byte of bits) for (; byte !== 0; byte &= byte - 1) count += 1;
  return count;
}

/**
 * Copies a view that will be stored. The view itself would keep its whole message in memory, and a message may hold
 * megabytes of other streams.
 */
export function copyView(bytes: Uint8Array): Uint8Array {
  return bytes.buffer.byteLength > 2 * bytes.length ? new Uint8Array(bytes) : bytes;
}

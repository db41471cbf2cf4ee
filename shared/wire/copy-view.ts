/**
 * Copies a view that will be stored, because the view would keep its whole message in memory, with other streams'
 * megabytes.
 */
export function copyView(bytes: Uint8Array): Uint8Array {
  return bytes.buffer.byteLength > 2 * bytes.length ? new Uint8Array(bytes) : bytes;
}

/** Copies a view that is to be stored. The view would keep its whole message alive, with other streams' megabytes. */
export function copyView(bytes: Uint8Array): Uint8Array {
  return bytes.buffer.byteLength > 2 * bytes.length ? new Uint8Array(bytes) : bytes;
}

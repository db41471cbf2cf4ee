/** A copy of a view that is to wait. The view would keep its whole message, with other streams' megabytes in it. */
export function owned(bytes: Uint8Array): Uint8Array {
  return bytes.buffer.byteLength > 2 * bytes.length ? new Uint8Array(bytes) : bytes;
}

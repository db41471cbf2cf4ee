/** A view that waits would keep the whole message that it is part of, with other streams' megabytes in it. */
export function owned(bytes: Uint8Array): Uint8Array {
  return bytes.buffer.byteLength > 2 * bytes.length ? new Uint8Array(bytes) : bytes;
}

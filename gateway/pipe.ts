/**
 * A stream whose writes finish when the reader has taken them: nothing is buffered between the two ends. workerd has one that runs without
 * JavaScript for each chunk; elsewhere it is a TransformStream as the standard makes it.
 */
export function pipe(): { readable: ReadableStream<Uint8Array>; writable: WritableStream<Uint8Array> } {
  const native: unknown = Reflect.get(globalThis, 'IdentityTransformStream');
  if (typeof native !== 'function') return new TransformStream<Uint8Array, Uint8Array>();
  return Reflect.construct(native, []) as TransformStream<Uint8Array, Uint8Array>;
}

import { type FileStore, FileStoreError, FileTooLarge } from '../../files/file-store.ts';

/** R2 wants all parts of an upload but the last to be equal, and at least 5 MiB. One part is in memory. */
const PART_BYTES = 8 * 1024 * 1024;

/** Files in an R2 bucket. An upload appears when it is complete. */
export class R2Files implements FileStore {
  readonly #bucket: R2Bucket;

  constructor(bucket: R2Bucket) {
    this.#bucket = bucket;
  }

  async put(id: string, content: AsyncIterable<Uint8Array>, maxBytes: number): Promise<{ bytes: number }> {
    const parts = partsOf(content, maxBytes);
    const first = await parts.next();
    const whole = first.value ?? new Uint8Array(0);
    if (whole.length < PART_BYTES) {
      await storing(() => this.#bucket.put(keyOf(id), whole));
      return { bytes: whole.length };
    }
    const upload = await storing(() => this.#bucket.createMultipartUpload(keyOf(id)));
    try {
      const uploaded: R2UploadedPart[] = [];
      let bytes = 0;
      for (let part = first; part.done !== true; part = await parts.next()) {
        const { value } = part;
        bytes += value.length;
        uploaded.push(await storing(() => upload.uploadPart(uploaded.length + 1, value)));
      }
      await storing(() => upload.complete(uploaded));
      return { bytes };
    } catch (error) {
      await upload.abort().catch(() => {});
      throw error;
    }
  }

  async read(id: string, range?: { offset: number; length: number }): Promise<AsyncIterable<Uint8Array> | undefined> {
    const object = await storing(() => this.#bucket.get(keyOf(id), range === undefined ? {} : { range }));
    return object === null ? undefined : iterated(object.body);
  }

  async delete(id: string): Promise<void> {
    await storing(() => this.#bucket.delete(keyOf(id)));
  }
}

function keyOf(id: string): string {
  return `files/${id}`;
}

/** Pieces of exactly PART_BYTES, but for the last. */
async function* partsOf(content: AsyncIterable<Uint8Array>, maxBytes: number): AsyncGenerator<Uint8Array, undefined> {
  let part = new Uint8Array(PART_BYTES);
  let filled = 0;
  let bytes = 0;
  for await (const piece of content) {
    bytes += piece.length;
    if (bytes > maxBytes) throw new FileTooLarge(maxBytes);
    for (let at = 0; at < piece.length; ) {
      const taken = piece.subarray(at, at + PART_BYTES - filled);
      part.set(taken, filled);
      filled += taken.length;
      at += taken.length;
      if (filled < PART_BYTES) continue;
      yield part;
      part = new Uint8Array(PART_BYTES);
      filled = 0;
    }
  }
  if (filled > 0) yield part.subarray(0, filled);
}

async function* iterated(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

async function storing<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (cause) {
    throw new FileStoreError('unavailable', 'R2 does not answer', { cause });
  }
}

import { type FileStore, FileStoreError, type StoredFile } from '../../files/file-store.ts';
import { splitIntoParts } from '../../files/split-into-parts.ts';

/**
 * Bytes of a part. R2 requires all parts of an upload but the last to have the same size, at least 5 MiB. One part is
 * in memory.
 */
const PART_BYTES = 8 * 1024 * 1024;
const PREFIX = 'files/';

/** Stores files in an R2 bucket. A file appears when its upload is complete. */
export class R2FileStore implements FileStore {
  readonly #bucket: R2Bucket;

  constructor(bucket: R2Bucket) {
    this.#bucket = bucket;
  }

  async put(id: string, content: AsyncIterable<Uint8Array>, maxBytes: number): Promise<{ bytes: number }> {
    const parts = splitIntoParts(content, PART_BYTES, maxBytes);
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
    if (range?.length === 0)
      return (await storing(() => this.#bucket.head(keyOf(id)))) === null ? undefined : nothing();
    const object = await storing(() => this.#bucket.get(keyOf(id), range === undefined ? {} : { range }));
    if (object === null) return undefined;
    const end = range === undefined ? 0 : range.offset + range.length;
    if (object.size < end) {
      await object.body.cancel();
      throw new FileStoreError('damaged', `the file store has ${object.size} bytes of a file that should have ${end}`);
    }
    return iterated(object.body);
  }

  async delete(id: string): Promise<void> {
    await storing(() => this.#bucket.delete(keyOf(id)));
  }

  async *list(): AsyncGenerator<StoredFile> {
    for (let cursor: string | undefined, more = true; more; ) {
      const page: R2Objects = await storing(() =>
        this.#bucket.list({ prefix: PREFIX, ...(cursor === undefined ? {} : { cursor }) }),
      );
      for (const { key, uploaded } of page.objects)
        yield { id: key.slice(PREFIX.length), modifiedMs: uploaded.getTime() };
      more = page.truncated;
      cursor = page.truncated ? page.cursor : undefined;
    }
  }

  /** Does nothing: R2 does not list unfinished uploads, and drops them after seven days. */
  async dropUnfinished(): Promise<number> {
    return 0;
  }
}

async function* nothing(): AsyncGenerator<Uint8Array> {}

function keyOf(id: string): string {
  return `${PREFIX}${id}`;
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

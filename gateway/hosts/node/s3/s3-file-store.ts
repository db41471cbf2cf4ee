/** A file store that uses the objects of a bucket. */
import { parseListPage } from '../../../../node/s3.ts';
import { xmlTag, xmlTags } from '../../../../shared/text/xml-tags.ts';
import { type FileStore, FileStoreError, type StoredFile } from '../../../files/file-store.ts';
import { splitIntoParts } from '../../../files/split-into-parts.ts';
import { type S3Client, storeUnavailable, withStallTimeout } from './s3-client.ts';

/**
 * Bytes of a part. S3 requires at least 5 MiB and at most 10,000 parts, so files have at most 80 GiB. One part of each
 * upload is in memory.
 */
const PART_BYTES = 8 * 1024 * 1024;
/** Maximum time without a piece of a response. */
const STALL_MS = 30_000;
/** A read that is cut continues at the same position, up to this many consecutive times. */
const RESUMES_MAX = 5;
const LIST_PAGE = 1_000;
const BYTES = { 'content-type': 'application/octet-stream' };

interface S3FilesOptions {
  stallMs?: number;
}

/** Stores files as objects of a bucket. A file appears when it is complete, because S3 shows no partial objects. */
export class S3FileStore implements FileStore {
  readonly #client: S3Client;
  readonly #stallMs: number;

  constructor(client: S3Client, { stallMs = STALL_MS }: S3FilesOptions = {}) {
    this.#client = client;
    this.#stallMs = stallMs;
  }

  async put(key: string, content: AsyncIterable<Uint8Array>, maxBytes: number): Promise<{ bytes: number }> {
    const parts = splitIntoParts(content, PART_BYTES, maxBytes);
    const first = await parts.next();
    const whole = first.value ?? new Uint8Array(0);
    if (whole.length < PART_BYTES) {
      await there(this.#client.send({ method: 'PUT', key, headers: BYTES, body: whole })).then(dropped);
      return { bytes: whole.length };
    }
    const begun = await this.#client.text({ method: 'POST', key, query: { uploads: '' }, headers: BYTES });
    const uploadId = xmlTag(begun ?? '', 'UploadId');
    if (uploadId === undefined) throw storeUnavailable('the bucket did not start the upload');
    try {
      const tagged: string[] = [];
      let bytes = 0;
      for (let part = first; part.done !== true; part = await parts.next()) {
        bytes += part.value.length;
        tagged.push(await this.#part(key, uploadId, tagged.length + 1, part.value));
      }
      await this.#complete(key, uploadId, tagged, bytes);
      return { bytes };
    } catch (error) {
      await this.#abort(key, uploadId).catch(() => {});
      throw error;
    }
  }

  async #part(key: string, uploadId: string, number: number, body: Uint8Array<ArrayBuffer>): Promise<string> {
    const query = { partNumber: String(number), uploadId };
    const answer = await there(this.#client.send({ method: 'PUT', key, query, body }));
    await dropped(answer);
    const etag = answer.headers.get('etag');
    if (etag === null) throw storeUnavailable('the bucket returned no ETag of a part');
    return etag;
  }

  async #complete(key: string, uploadId: string, etags: readonly string[], bytes: number): Promise<void> {
    const parts = etags.map(
      (etag, at) => `<Part><PartNumber>${at + 1}</PartNumber><ETag>${escaped(etag)}</ETag></Part>`,
    );
    const body = new TextEncoder().encode(
      `<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">${parts.join('')}</CompleteMultipartUpload>`,
    );
    const headers = { 'content-type': 'application/xml' };
    const answer = await this.#client.text({ method: 'POST', key, query: { uploadId }, headers, body });
    // S3 may send 200 first and report a failure in the body. A retry after a lost response gets 404.
    if (answer !== undefined && !answer.includes('<Error>')) return;
    if ((await this.#bytesOf(key)) !== bytes)
      throw storeUnavailable(
        `the bucket did not complete the upload: ${xmlTag(answer ?? '', 'Code') ?? 'it no longer exists'}`,
      );
  }

  async read(key: string, range?: { offset: number; length: number }): Promise<AsyncIterable<Uint8Array> | undefined> {
    if (range?.length === 0) return (await this.#bytesOf(key)) === undefined ? undefined : nothing();
    const bytes = await this.#bytesOf(key);
    if (bytes === undefined) return undefined;
    const offset = range?.offset ?? 0;
    const end = range === undefined ? bytes : offset + range.length;
    if (end > bytes)
      throw new FileStoreError('damaged', `the file store has ${bytes} bytes of a file that should have ${end}`);
    return this.#pieces(key, offset, end);
  }

  /** Reads from `from` to `end`. If a response is cut, the read continues at the same position. */
  async *#pieces(key: string, from: number, end: number): AsyncGenerator<Uint8Array> {
    let at = from;
    for (let broken = 0; at < end; ) {
      const headers = { range: `bytes=${at}-${end - 1}` };
      const answer = await there(this.#client.send({ method: 'GET', key, headers }));
      try {
        for await (const piece of withStallTimeout(answer, this.#stallMs)) {
          const wanted = piece.subarray(0, end - at);
          at += wanted.length;
          broken = 0;
          yield wanted;
        }
        if (at < end) throw new Error('the response ended early');
      } catch (cause) {
        broken += 1;
        if (broken > RESUMES_MAX) throw storeUnavailable('the bucket does not resume an interrupted download', cause);
      }
    }
  }

  async delete(key: string): Promise<void> {
    const answer = await this.#client.send({ method: 'DELETE', key });
    if (answer !== undefined) await dropped(answer);
  }

  async *list(): AsyncGenerator<StoredFile> {
    const prefix = this.#client.prefix;
    for (let token: string | undefined = ''; token !== undefined; ) {
      const query: Record<string, string> = {
        'list-type': '2',
        'max-keys': String(LIST_PAGE),
        prefix: `${prefix}file-`,
      };
      if (token !== '') query['continuation-token'] = token;
      const page = (await this.#client.text({ method: 'GET', key: '', query })) ?? '';
      const { objects, next } = parseListPage(page);
      for (const { key, modified } of objects) yield { id: key.slice(prefix.length), modifiedMs: Date.parse(modified) };
      token = next;
    }
  }

  async dropUnfinished(beforeMs: number): Promise<number> {
    const prefix = this.#client.prefix;
    const query = { uploads: '', prefix: `${prefix}file-`, 'max-uploads': String(LIST_PAGE) };
    const page = (await this.#client.text({ method: 'GET', key: '', query })) ?? '';
    const [keys, ids, times] = [xmlTags(page, 'Key'), xmlTags(page, 'UploadId'), xmlTags(page, 'Initiated')];
    let dropped = 0;
    for (const [at, key] of keys.entries()) {
      const [id, begun] = [ids[at], Date.parse(times[at] ?? '')];
      if (id === undefined || !(begun < beforeMs)) continue;
      await this.#abort(key.slice(prefix.length), id);
      dropped += 1;
    }
    return dropped;
  }

  async #abort(key: string, uploadId: string): Promise<void> {
    const answer = await this.#client.send({ method: 'DELETE', key, query: { uploadId } });
    if (answer !== undefined) await dropped(answer);
  }

  async #bytesOf(key: string): Promise<number | undefined> {
    const answer = await this.#client.send({ method: 'HEAD', key });
    return answer === undefined ? undefined : Number(answer.headers.get('content-length'));
  }
}

async function* nothing(): AsyncGenerator<Uint8Array> {}

/** @throws FileStoreError if the object or the upload does not exist */
async function there(answer: Promise<Response | undefined>): Promise<Response> {
  const found = await answer;
  if (found === undefined) throw storeUnavailable('the bucket has lost the file');
  return found;
}

async function dropped(answer: Response): Promise<void> {
  await answer.body?.cancel();
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
}

import { posix } from 'node:path';
import { type ListedObject, parseListPage, readS3Account, type SignS3Request, s3Signer } from '../../../node/s3.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import {
  FILES_MAX,
  type ManifestFile,
  type WeightsManifest,
  weightsManifestSchema,
} from '../../../shared/weights/weights-manifest.ts';
import { type Source, sourceText } from '../../../shared/weights/weights-source.ts';
import { asWeightsError, WeightsError } from '../weights-error.ts';
import type { BlobSource, ReadFrom } from './blob-source.ts';
import { bodyFromOffset, contentTotal, discardResponse, httpGet, responseText } from './http-get.ts';
import { listingRevision, manifestFile, sortedFiles } from './source-listing.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** Maximum length of a page of 1,000 names. */
const PAGE_MAX_BYTES = 4 * 1024 * 1024;

/** A bucket of S3 or a compatible server. */
export class S3Source implements BlobSource {
  readonly #source: Source & { kind: 's3' };
  readonly #env: Env;
  readonly #sign: SignS3Request;

  constructor(source: Source & { kind: 's3' }, env: Env) {
    this.#source = source;
    this.#env = env;
    try {
      this.#sign = s3Signer(readS3Account(env), source.bucket);
    } catch (cause) {
      throw new WeightsError('wrong', errorText(cause), { cause });
    }
  }

  async list(signal: AbortSignal): Promise<WeightsManifest> {
    const source = sourceText(this.#source);
    const { prefix } = this.#source;
    try {
      const folder = prefix === '' ? '' : `${prefix}/`;
      const below = await this.#below(folder, signal);
      const found = below.length > 0 ? below : await this.#alone(signal);
      if (found.length === 0) throw new WeightsError('wrong', `${source} contains no objects`);
      const named = (key: string) => (key === prefix ? posix.basename(key) : key.slice(folder.length));
      const files = sortedFiles(found.map(({ key, ...more }) => manifestFile(source, { path: named(key), ...more })));
      return weightsManifestSchema.parse({ v: 1, source, revision: listingRevision(files), public: false, files });
    } catch (error) {
      throw asWeightsError(error);
    }
  }

  async #below(folder: string, signal: AbortSignal): Promise<Row[]> {
    const rows: Row[] = [];
    let token: string | undefined;
    do {
      const page = await this.#page(
        { prefix: folder, ...(token === undefined ? {} : { 'continuation-token': token }) },
        signal,
      );
      rows.push(...page.objects.map(rowOf).filter(({ key }) => !key.endsWith('/')));
      token = page.next;
    } while (token !== undefined && rows.length <= FILES_MAX);
    return rows;
  }

  /**
   * The object whose key equals the prefix, if there is one. The server lists it first of all objects with that prefix.
   */
  async #alone(signal: AbortSignal): Promise<Row[]> {
    const { prefix } = this.#source;
    const objects = prefix === '' ? [] : (await this.#page({ prefix, 'max-keys': '1' }, signal)).objects;
    return objects.map(rowOf).filter(({ key }) => key === prefix);
  }

  async #page(query: Record<string, string>, signal: AbortSignal) {
    const answer = await this.#get('', { 'list-type': '2', ...query }, signal);
    return parseListPage(await responseText(answer, PAGE_MAX_BYTES));
  }

  async *read(file: ManifestFile, { offset }: ReadFrom, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const { prefix } = this.#source;
    const { path, size } = file;
    try {
      const isAlone = posix.basename(prefix) === path && (await this.#alone(signal)).length > 0;
      const key = isAlone ? prefix : prefix === '' ? path : `${prefix}/${path}`;
      const range = offset > 0 ? { range: `bytes=${offset}-` } : {};
      const answer = await this.#get(key, {}, signal, range);
      const { etag, 'last-modified': modified = '' } = answer.headers;
      const stamps = [String(etag ?? ''), modifiedAt(String(modified))];
      const keys = stamps.map((stamp) => manifestFile(sourceText(this.#source), { path, size, stamp }).key);
      if ((contentTotal(answer) ?? size) !== size || !keys.includes(file.key)) {
        discardResponse(answer);
        throw new WeightsError('changed', `${key} has changed since it was listed`);
      }
      yield* bodyFromOffset(answer, offset);
    } catch (error) {
      throw asWeightsError(error);
    }
  }

  async #get(key: string, query: Record<string, string>, signal: AbortSignal, headers: Record<string, string> = {}) {
    const signed = await this.#sign({ method: 'GET', key, query, headers });
    const secret = Object.fromEntries(signed.headers);
    return httpGet({ url: new URL(signed.url), secret, env: this.#env, signal });
  }
}

interface Row {
  key: string;
  size: number;
  stamp: string;
}

function rowOf({ key, size, etag, modified }: ListedObject): Row {
  return { key, size, stamp: etag || modifiedAt(modified) };
}

/** When an object was modified, in whole seconds: lists have milliseconds, but responses do not. */
function modifiedAt(text: string): string {
  const seconds = Math.floor(Date.parse(text) / 1000);
  return Number.isNaN(seconds) ? '' : `modified ${seconds}`;
}

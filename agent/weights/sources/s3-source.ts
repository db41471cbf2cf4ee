import { posix } from 'node:path';
import { AwsClient } from 'aws4fetch';
import { xmlTag } from '../../../shared/text/xml-tags.ts';
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
import { listingRevision, manifestFile, sortedFiles } from './manifest-file.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** Maximum length of a page of 1,000 names. */
const PAGE_MAX_BYTES = 4 * 1024 * 1024;

/**
 * A bucket of S3 or a compatible server. AWS_ENDPOINT_URL_S3, AWS_REGION and AWS_ACCESS_KEY_ID have the same meaning as
 * in AWS' programs.
 */
export class S3Source implements BlobSource {
  readonly #source: Source & { kind: 's3' };
  readonly #env: Env;
  readonly #aws: AwsClient;
  readonly #bucket: string;

  constructor(source: Source & { kind: 's3' }, env: Env) {
    const {
      AWS_ACCESS_KEY_ID: accessKeyId,
      AWS_SECRET_ACCESS_KEY: secretAccessKey,
      AWS_SESSION_TOKEN: sessionToken,
    } = env;
    if (!accessKeyId || !secretAccessKey)
      throw new WeightsError('wrong', 's3://… needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment');
    const region = env.AWS_REGION ?? env.AWS_DEFAULT_REGION ?? 'us-east-1';
    this.#source = source;
    this.#env = env;
    this.#aws = new AwsClient({
      accessKeyId,
      secretAccessKey,
      region,
      service: 's3',
      ...(sessionToken ? { sessionToken } : {}),
    });
    const endpoint = env.AWS_ENDPOINT_URL_S3 ?? env.AWS_ENDPOINT_URL ?? `https://s3.${region}.amazonaws.com`;
    this.#bucket = `${endpoint.replace(/\/+$/, '')}/${source.bucket}`;
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
      rows.push(...rowsOf(page).filter(({ key }) => !key.endsWith('/')));
      token = xmlTag(page, 'IsTruncated') === 'true' ? xmlTag(page, 'NextContinuationToken') : undefined;
    } while (token !== undefined && rows.length <= FILES_MAX);
    return rows;
  }

  /** The object whose key equals the prefix. It comes first among those with that prefix. */
  async #alone(signal: AbortSignal): Promise<Row[]> {
    const { prefix } = this.#source;
    const rows = prefix === '' ? [] : rowsOf(await this.#page({ prefix, 'max-keys': '1' }, signal));
    return rows.filter(({ key }) => key === prefix);
  }

  async #page(query: Record<string, string>, signal: AbortSignal): Promise<string> {
    return responseText(await this.#get('', { 'list-type': '2', ...query }, signal), PAGE_MAX_BYTES);
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
    const url = new URL(`${this.#bucket}${key === '' ? '' : `/${key.split('/').map(encodeURIComponent).join('/')}`}`);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    const signed = await this.#aws.sign(url, { method: 'GET', headers });
    const secret = Object.fromEntries(signed.headers);
    return httpGet({ url: new URL(signed.url), secret, env: this.#env, signal });
  }
}

interface Row {
  key: string;
  size: number;
  stamp: string;
}

/** Parsed object by object, because a server may omit the tags of some. */
function rowsOf(page: string): Row[] {
  return page
    .split('<Contents>')
    .slice(1)
    .map((row) => ({
      key: xmlTag(row, 'Key') ?? '',
      size: Number(xmlTag(row, 'Size')),
      stamp: xmlTag(row, 'ETag') || modifiedAt(xmlTag(row, 'LastModified') ?? ''),
    }));
}

/** In seconds: lists have milliseconds, responses have seconds. */
function modifiedAt(text: string): string {
  const seconds = Math.floor(Date.parse(text) / 1000);
  return Number.isNaN(seconds) ? '' : `modified ${seconds}`;
}

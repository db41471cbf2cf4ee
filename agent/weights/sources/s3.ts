import { AwsClient } from 'aws4fetch';
import { tag } from '../../../shared/text/xml.ts';
import { FILES_MAX, type Manifest, type ManifestFile, manifestSchema } from '../../../shared/weights/manifest.ts';
import { type Source, sourceText } from '../../../shared/weights/source.ts';
import { asWeightsError, WeightsError } from '../error.ts';
import { get, leave, rangeOf, textOf, totalOf } from './http.ts';
import { manifestFile, revisionOf, sortedFiles } from './keys.ts';
import type { BlobSource, ReadFrom } from './source.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** A page of 1,000 names. */
const PAGE_MAX_BYTES = 4 * 1024 * 1024;

/** A bucket of S3 or of a server that speaks it: AWS_ENDPOINT_URL_S3, AWS_REGION and AWS_ACCESS_KEY_ID as AWS' programs read them. */
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

  async list(signal: AbortSignal): Promise<Manifest> {
    const source = sourceText(this.#source);
    const prefix = this.#source.prefix === '' ? '' : `${this.#source.prefix}/`;
    try {
      const files: ManifestFile[] = [];
      let token: string | undefined;
      do {
        const query = { 'list-type': '2', prefix, ...(token === undefined ? {} : { 'continuation-token': token }) };
        const page = await textOf(await this.#get('', query, signal), PAGE_MAX_BYTES);
        // One object after the other: a server may leave out the tag of some.
        for (const row of page.split('<Contents>').slice(1)) {
          const [key = '', etag, modified = ''] = ['Key', 'ETag', 'LastModified'].map((name) => tag(row, name));
          const path = key.slice(prefix.length);
          const stamp = etag || modifiedAt(modified);
          if (!key.endsWith('/')) files.push(manifestFile(source, { path, size: Number(tag(row, 'Size')), stamp }));
        }
        token = tag(page, 'IsTruncated') === 'true' ? tag(page, 'NextContinuationToken') : undefined;
      } while (token !== undefined && files.length <= FILES_MAX);
      if (files.length === 0) throw new WeightsError('wrong', `${source} holds no object`);
      const sorted = sortedFiles(files);
      return manifestSchema.parse({ v: 1, source, revision: revisionOf(sorted), public: false, files: sorted });
    } catch (error) {
      throw asWeightsError(error);
    }
  }

  async *read(file: ManifestFile, { offset }: ReadFrom, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const { prefix } = this.#source;
    const { path, size } = file;
    try {
      const key = prefix === '' ? path : `${prefix}/${path}`;
      const range = offset > 0 ? { range: `bytes=${offset}-` } : {};
      const answer = await this.#get(key, {}, signal, range);
      const { etag, 'last-modified': modified = '' } = answer.headers;
      const stamps = [String(etag ?? ''), modifiedAt(String(modified))];
      const keys = stamps.map((stamp) => manifestFile(sourceText(this.#source), { path, size, stamp }).key);
      if ((totalOf(answer) ?? size) !== size || !keys.includes(file.key)) {
        leave(answer);
        throw new WeightsError('changed', `${key} has changed since it was listed`);
      }
      yield* rangeOf(answer, offset);
    } catch (error) {
      throw asWeightsError(error);
    }
  }

  async #get(key: string, query: Record<string, string>, signal: AbortSignal, headers: Record<string, string> = {}) {
    const url = new URL(`${this.#bucket}${key === '' ? '' : `/${key.split('/').map(encodeURIComponent).join('/')}`}`);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    const signed = await this.#aws.sign(url, { method: 'GET', headers });
    const secret = Object.fromEntries(signed.headers);
    return get({ url: new URL(signed.url), secret, env: this.#env, signal });
  }
}

/** Lists have milliseconds, answers have seconds. */
function modifiedAt(text: string): string {
  const seconds = Math.floor(Date.parse(text) / 1000);
  return Number.isNaN(seconds) ? '' : `modified ${seconds}`;
}

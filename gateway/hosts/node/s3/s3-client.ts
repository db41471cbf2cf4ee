/** Signed requests to one bucket, retried while the store is away. https://docs.aws.amazon.com/AmazonS3/latest/API/ */
import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { AwsClient } from 'aws4fetch';
import { xmlTag } from '../../../../shared/text/xml-tags.ts';
import { AdaptiveTimeout } from '../../../../shared/timing/adaptive-timeout.ts';
import { FileStoreError } from '../../../files/file-store.ts';
import { waitClock } from '../../../platform/wait-clock.ts';
import type { S3Config } from './s3-config.ts';

/** A restarting store is back within seconds; a client's upload waits no longer than this allows. */
const ATTEMPTS = 4;
const FIRST_PAUSE_MS = 250;
/** From a request's first byte to its response head: a part of 8 MiB at 140 KB/s. */
const ANSWER_MS = 60_000;
/** A bucket that was slow before gets up to this many times as long. */
const SLOWER = 10;
/** Errors are a few hundred bytes of XML; a page of a list has 1,000 names. */
const TEXT_MAX_BYTES = 1024 * 1024;

/** Codes of S3 and compatible servers for a full bucket. */
const FULL: ReadonlySet<string> = new Set([
  'InsufficientCapacity',
  'InsufficientStorage',
  'QuotaExceeded',
  'QuotaExceededException',
  'StorageFull',
  'XMinioStorageFull',
]);

interface S3Request {
  method: 'GET' | 'PUT' | 'POST' | 'DELETE' | 'HEAD';
  /** Key of the object; empty: the bucket itself. */
  key: string;
  query?: Record<string, string>;
  headers?: Record<string, string>;
  body?: Uint8Array<ArrayBuffer>;
}

export class S3Client {
  readonly #config: S3Config;
  readonly #aws: AwsClient;
  readonly #answerMs: number;
  readonly #answers: AdaptiveTimeout;

  constructor(config: S3Config, answerMs = ANSWER_MS) {
    const { accessKeyId, secretAccessKey, sessionToken, region } = config;
    this.#config = config;
    this.#answerMs = answerMs;
    this.#answers = new AdaptiveTimeout({ leastMs: answerMs, mostMs: SLOWER * answerMs });
    this.#aws = new AwsClient({
      accessKeyId,
      secretAccessKey,
      region,
      service: 's3',
      ...(sessionToken === undefined ? {} : { sessionToken }),
    });
  }

  /** Prepended to each name, also in lists. */
  get prefix(): string {
    return this.#config.prefix;
  }

  /**
   * A 2xx response, or undefined for a 404 of an object. The caller must read or cancel its body.
   * @throws FileStoreError
   */
  async send(request: S3Request): Promise<Response | undefined> {
    for (let tries = 1; ; tries++) {
      const answer = await this.#requestOnce(request);
      if (answer instanceof Response) return answer;
      if (answer === 'missing') return undefined;
      if (!answer.again || tries === ATTEMPTS) throw answer.error;
      // Randomized, so that many uploads do not retry together.
      await delay(FIRST_PAUSE_MS * 2 ** (tries - 1) * (0.5 + Math.random()));
    }
  }

  /** The response's text; undefined for 404. @throws FileStoreError */
  async text(request: S3Request): Promise<string | undefined> {
    const answer = await this.send(request);
    if (answer === undefined) return undefined;
    return textOf(answer, this.#answerMs).catch((cause) => {
      throw storeUnavailable('the answer of the bucket broke off', cause);
    });
  }

  async #requestOnce(request: S3Request): Promise<Response | 'missing' | { again: boolean; error: FileStoreError }> {
    let response: Response;
    try {
      response = await this.#fetch(request);
    } catch (cause) {
      return { again: true, error: storeUnavailable('the bucket does not answer', cause) };
    }
    if (response.ok) return response;
    const code = codeOf(response, await textOf(response, this.#answerMs).catch(() => ''));
    if (response.status === 404 && code !== 'NoSuchBucket' && request.key !== '') return 'missing';
    if (response.status === 507 || FULL.has(code))
      return { again: false, error: new FileStoreError('full', `the bucket takes no more: ${code}`) };
    const again = response.status >= 500 || response.status === 429 || response.status === 408;
    return { again, error: storeUnavailable(`the bucket answers ${response.status} ${code}`) };
  }

  async #fetch({ method, key, query = {}, headers = {}, body }: S3Request): Promise<Response> {
    const { endpoint, bucket, prefix } = this.#config;
    const url = new URL(`${endpoint}/${bucket}${key === '' ? '' : `/${prefix}${key}`}`);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    // The store refuses a part that arrives modified.
    const sha256 = createHash('sha256')
      .update(body ?? '')
      .digest('hex');
    const signed = await this.#aws.sign(url, {
      method,
      headers: { ...headers, 'x-amz-content-sha256': sha256 },
      ...(body === undefined ? {} : { body }),
    });
    // `sign` makes the body a stream, which a retry could not read and servers would get without a length.
    return waitClock.call(this.#answers, (signal) =>
      fetch(signed.url, {
        method,
        headers: signed.headers,
        redirect: 'error',
        signal,
        ...(body === undefined ? {} : { body }),
      }),
    );
  }
}

/** @throws Error above TEXT_MAX_BYTES, or if a piece does not arrive */
async function textOf(response: Response, stallMs: number): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const piece of withStallTimeout(response, stallMs)) {
    text += decoder.decode(piece, { stream: true });
    if (text.length > TEXT_MAX_BYTES) throw new Error('an answer that is too long');
  }
  return text + decoder.decode();
}

/** The body of a response. @throws Error if no piece arrives for `stallMs` */
export async function* withStallTimeout(answer: Response, stallMs: number): AsyncGenerator<Uint8Array> {
  const reader = answer.body?.getReader();
  if (reader === undefined) return;
  try {
    for (;;) {
      const stalled = Promise.withResolvers<never>();
      const timer = setTimeout(() => stalled.reject(new Error(`nothing for ${stallMs} ms`)), stallMs);
      const { done, value } = await Promise.race([reader.read(), stalled.promise]).finally(() => clearTimeout(timer));
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

function codeOf(response: Response, text: string): string {
  return xmlTag(text, 'Code') ?? response.statusText;
}

export function storeUnavailable(message: string, cause?: unknown): FileStoreError {
  return new FileStoreError('unavailable', message, { cause });
}

/**
 * Sends signed requests to one bucket, and retries them while the store is unavailable.
 * https://docs.aws.amazon.com/AmazonS3/latest/API/
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type S3Request, type SignS3Request, s3Signer } from '../../../../node/s3.ts';
import { readTextAtMost } from '../../../../shared/collections/read-at-most.ts';
import { xmlTag } from '../../../../shared/text/xml-tags.ts';
import { AdaptiveTimeout } from '../../../../shared/timing/adaptive-timeout.ts';
import { FileStoreError } from '../../../files/file-store.ts';
import { waitClock } from '../../../platform/wait-clock.ts';
import type { S3Config } from './s3-config.ts';

/** Maximum attempts: a restarting store is back within seconds, and a client's upload should not wait for longer. */
const ATTEMPTS = 4;
const FIRST_PAUSE_MS = 250;
/** Maximum time from a request's first byte to the response's head, which allows a part of 8 MiB at 140 KB/s. */
const ANSWER_MS = 60_000;
/** If the bucket was slow before, ANSWER_MS is multiplied by up to this factor. */
const SLOWER = 10;
/** Maximum bytes of a text. Errors are a few hundred bytes of XML; a page of a list has 1,000 names. */
const TEXT_MAX_BYTES = 1024 * 1024;

/** Error codes of S3 and compatible servers for a full bucket. */
const FULL: ReadonlySet<string> = new Set([
  'InsufficientCapacity',
  'InsufficientStorage',
  'QuotaExceeded',
  'QuotaExceededException',
  'StorageFull',
  'XMinioStorageFull',
]);

/**
 * Error codes of S3 if an object or upload does not exist. A 404 response of a proxy contains none of these codes, so
 * it does not mean that the object is missing.
 */
const MISSING: ReadonlySet<string> = new Set(['NoSuchKey', 'NoSuchUpload', 'NoSuchVersion']);

export class S3Client {
  readonly #config: S3Config;
  readonly #sign: SignS3Request;
  readonly #answerMs: number;
  readonly #answers: AdaptiveTimeout;

  constructor(config: S3Config, answerMs = ANSWER_MS) {
    this.#config = config;
    this.#answerMs = answerMs;
    this.#answers = new AdaptiveTimeout({ leastMs: answerMs, mostMs: SLOWER * answerMs });
    this.#sign = s3Signer(config, config.bucket);
  }

  /** Prefix of the name of each object. Names in lists include it. */
  get prefix(): string {
    return this.#config.prefix;
  }

  /**
   * Returns a 2xx response, or undefined if the store says that an object does not exist. The caller must read or
   * cancel its body.
   * @throws FileStoreError
   */
  async send(request: S3Request): Promise<Response | undefined> {
    for (let tries = 1; ; tries++) {
      const answer = await this.#requestOnce(request);
      if (answer instanceof Response) return answer;
      if (answer === 'missing') return undefined;
      if (!answer.again || tries === ATTEMPTS) throw answer.error;
      // The pause is randomized, so that many uploads do not retry together.
      await delay(FIRST_PAUSE_MS * 2 ** (tries - 1) * (0.5 + Math.random()));
    }
  }

  /** Returns the response's text; undefined if the object does not exist. @throws FileStoreError */
  async text(request: S3Request): Promise<string | undefined> {
    const answer = await this.send(request);
    if (answer === undefined) return undefined;
    return textOf(answer, this.#answerMs).catch((cause) => {
      throw storeUnavailable('the response of the bucket broke off', cause);
    });
  }

  async #requestOnce(request: S3Request): Promise<Response | 'missing' | { again: boolean; error: FileStoreError }> {
    let response: Response;
    try {
      response = await this.#fetch(request);
    } catch (cause) {
      return { again: true, error: storeUnavailable('the bucket did not answer', cause) };
    }
    if (response.ok) return response;
    const code = codeOf(response, await textOf(response, this.#answerMs).catch(() => ''));
    if (response.status === 404 && request.key !== '') {
      if (request.method === 'HEAD') return this.#reasonOfMissing(request);
      if (MISSING.has(code)) return 'missing';
    }
    if (response.status === 507 || FULL.has(code))
      return { again: false, error: new FileStoreError('full', `the bucket is full: ${code}`) };
    // A 404 response without one of S3's error codes comes from a proxy.
    const isPage = response.status === 404 && !code.startsWith('NoSuch');
    const again = response.status >= 500 || response.status === 429 || response.status === 408 || isPage;
    return { again, error: storeUnavailable(`the bucket answered ${response.status} ${code}`) };
  }

  /**
   * Asks again with GET, because a response to HEAD has no body, and so no error code. Without the code, a 404 response
   * may come from a proxy.
   */
  async #reasonOfMissing(request: S3Request): Promise<'missing' | { again: boolean; error: FileStoreError }> {
    const answer = await this.#requestOnce({ ...request, method: 'GET', headers: { range: 'bytes=0-0' } });
    if (!(answer instanceof Response)) return answer;
    await answer.body?.cancel();
    return { again: true, error: storeUnavailable('the bucket answered 404, and then had the object') };
  }

  async #fetch(request: S3Request): Promise<Response> {
    const { method, key, body } = request;
    const { url, headers } = await this.#sign({ ...request, key: key === '' ? '' : `${this.prefix}${key}` });
    return waitClock.call(this.#answers, (signal) =>
      fetch(url, { method, headers, redirect: 'error', signal, ...(body === undefined ? {} : { body }) }),
    );
  }
}

/** @throws Error above TEXT_MAX_BYTES, or if no piece arrives for `stallMs` */
async function textOf(response: Response, stallMs: number): Promise<string> {
  const text = await readTextAtMost(withStallTimeout(response, stallMs), TEXT_MAX_BYTES);
  if (text === undefined) throw new Error('the response is too long');
  return text;
}

/** Yields the body of a response. @throws Error if no piece arrives for `stallMs` */
export async function* withStallTimeout(answer: Response, stallMs: number): AsyncGenerator<Uint8Array> {
  const reader = answer.body?.getReader();
  if (reader === undefined) return;
  try {
    for (;;) {
      const stalled = Promise.withResolvers<never>();
      const timer = setTimeout(() => stalled.reject(new Error(`received nothing for ${stallMs} ms`)), stallMs);
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

import { type Dispatcher, ProxyAgent, request } from 'undici';
import { readTextAtMost } from '../../../shared/collections/read-at-most.ts';
import { proxyAuthorization, proxyFor } from '../../host/proxy-variables.ts';
import { WeightsError } from '../weights-error.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** Timeout of a response's head. A hub answers quickly, but its storage may have to wake a disk. */
const HEAD_WITHIN_MS = 30_000;
/** Maximum time between two pieces of a body. */
const SILENCE_MS = 60_000;
const REDIRECTS_MAX = 5;

interface Get {
  url: URL;
  /**
   * Headers that contain secrets. They are sent only to the origin of `url`, because a redirect may lead to a storage
   * server that must not see a token.
   */
  secret: Readonly<Record<string, string>>;
  headers?: Readonly<Record<string, string>>;
  env: Env;
  signal: AbortSignal;
}

/** A GET that follows redirects. The caller must read the body. @throws WeightsError for any status except 2xx */
export async function httpGet({ url, secret, headers = {}, env, signal }: Get): Promise<Dispatcher.ResponseData> {
  let at = url;
  for (let redirects = 0; redirects <= REDIRECTS_MAX; redirects++) {
    const proxy = proxyFor(at, env);
    const dispatcher = proxy === undefined ? undefined : proxyAgent(proxy);
    const answer = await request(at, {
      headers: { ...headers, ...(at.origin === url.origin ? secret : {}) },
      headersTimeout: HEAD_WITHIN_MS,
      bodyTimeout: SILENCE_MS,
      signal,
      ...(dispatcher === undefined ? {} : { dispatcher }),
    });
    const { statusCode, headers: got } = answer;
    if (statusCode >= 200 && statusCode < 300) return answer;
    await answer.body.dump();
    const to = typeof got.location === 'string' ? URL.parse(got.location, at.href) : null;
    if (![301, 302, 303, 307, 308].includes(statusCode) || to === null || !/^https?:$/.test(to.protocol))
      throw new WeightsError(
        statusCode === 401 || statusCode === 403 ? 'refused' : 'unavailable',
        `${at.origin}${at.pathname} answers ${statusCode}${hubExplanation(got['x-error-message'])}`,
        { status: statusCode },
      );
    if (at.protocol === 'https:' && to.protocol === 'http:')
      throw new WeightsError('refused', `${at.origin} redirects to an unencrypted connection`);
    at = to;
  }
  throw new WeightsError('unavailable', `${url.origin} redirects too often`);
}

/**
 * Passes the proxy's credentials to undici as a ready header. undici itself would decode them with decodeURIComponent,
 * which throws at a percent sign that is not an escape.
 */
function proxyAgent(proxy: URL): ProxyAgent {
  const token = proxyAuthorization(proxy);
  return new ProxyAgent({ uri: proxy.origin, ...(token === undefined ? {} : { token }) });
}

/** @throws WeightsError if the body has more than `max` bytes */
export async function responseText(answer: Dispatcher.ResponseData, max: number): Promise<string> {
  const text = await readTextAtMost(answer.body, max);
  if (text === undefined) throw new WeightsError('wrong', `the response is larger than ${max} bytes`);
  return text;
}

/**
 * The hub's explanation of a refusal, for the error message. A user without a token needs it, because the hub then
 * refuses a name that does not exist in the same way as a private one.
 */
function hubExplanation(message: string | string[] | undefined): string {
  return typeof message === 'string' && /^[\x20-\x7e]{1,300}$/.test(message) ? `: ${message}` : '';
}

/**
 * Bytes from `offset` on, from the response to a range request.
 * @throws WeightsError if the response begins after `offset`
 */
export async function* bodyFromOffset(answer: Dispatcher.ResponseData, offset: number): AsyncGenerator<Uint8Array> {
  const { first = offset } = answer.statusCode === 206 ? contentRange(answer) : { first: 0 };
  if (first > offset) {
    discardResponse(answer);
    throw new WeightsError('unavailable', 'the source does not resume an interrupted download');
  }
  // A server may ignore the range and send the whole body (RFC 9110 §14.2). Then skip the part that is already on disk.
  let over = offset - first;
  for await (const part of answer.body) {
    const bytes = Buffer.from(part);
    yield bytes.subarray(Math.min(over, bytes.length));
    over = Math.max(0, over - bytes.length);
  }
}

/**
 * Discards the rest of a response. The listener is needed because the body's error would otherwise end this process.
 */
export function discardResponse({ body }: Dispatcher.ResponseData): void {
  body.on('error', () => {}).destroy();
}

/** Total size of the resource, as far as the response states it. */
export function contentTotal(answer: Dispatcher.ResponseData): number | undefined {
  const length = answer.headers['content-length'];
  return answer.statusCode === 206
    ? contentRange(answer).size
    : typeof length === 'string'
      ? Number(length)
      : undefined;
}

function contentRange({ headers }: Dispatcher.ResponseData): { first?: number; size?: number } {
  const [, first, size] = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(String(headers['content-range'])) ?? [];
  return {
    ...(first === undefined ? {} : { first: Number(first) }),
    ...(size === undefined || size === '*' ? {} : { size: Number(size) }),
  };
}

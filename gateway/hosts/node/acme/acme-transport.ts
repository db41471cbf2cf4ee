/** Requests to a certificate authority: signed, each with a fresh nonce (RFC 8555 §6), and with bounded answers. */
import type { KeyObject } from 'node:crypto';
import { FlattenedSign, type JWK } from 'jose';
import type * as z from 'zod';
import { causeText } from '../../../../node/gateway-client.ts';
import { readTextAtMost } from '../../../../shared/collections/read-at-most.ts';
import { tryParseJson } from '../../../../shared/text/parse-json.ts';
import { AcmeError, problemIn, refusal } from './acme-error.ts';

/** Maximum size of an answer. A certificate's chain has a few KiB. */
const ANSWER_MAX_BYTES = 256 * 1024;
const REQUEST_MS = 30_000;
const NONCE = /^[\w-]{1,512}$/;
/** Maximum tries of one request, because an authority may refuse a nonce at any time (RFC 8555 §6.5). */
const NONCE_TRIES = 10;
/** Longest wait that an authority can ask for. Let's Encrypt counts certificates of a week. */
const RETRY_AFTER_MAX_MS = 7 * 24 * 60 * 60_000;

export interface AcmeAnswer {
  text: string;
  /** The `Location` header. */
  location: string | undefined;
  /** From `Retry-After`; 0: absent. */
  retryAfterMs: number;
}

/** How a signed request names its account (RFC 8555 §6.2). */
export type Signer = { jwk: JWK } | { kid: string };

interface TransportOptions {
  accountKey: KeyObject;
  /** Ends all requests. */
  signal: AbortSignal;
}

type Answered = AcmeAnswer & { status: number; nonce: string | null };

export class AcmeTransport {
  readonly #options: TransportOptions;
  readonly #newNonce: string;
  #nonce: string | undefined;

  /** @param newNonce URL of the authority that gives nonces */
  constructor(newNonce: string, options: TransportOptions) {
    this.#newNonce = newNonce;
    this.#options = options;
  }

  /**
   * @param payload undefined: reads the resource (POST-as-GET, RFC 8555 §6.3)
   * @throws AcmeError
   */
  async post(url: string, signer: Signer, payload?: object): Promise<AcmeAnswer> {
    const bytes = new TextEncoder().encode(payload === undefined ? '' : JSON.stringify(payload));
    const { accountKey, signal } = this.#options;
    for (let tries = 1; ; tries++) {
      const header = { alg: 'ES256', nonce: await this.#takeNonce(), url, ...signer };
      const body = JSON.stringify(await new FlattenedSign(bytes).setProtectedHeader(header).sign(accountKey));
      const answered = await send(url, signal, { method: 'POST', body });
      this.#keepNonce(answered.nonce);
      if (answered.status < 400) return answered;
      const error = errorOf(url, answered);
      if (error.problem !== 'badNonce' || tries === NONCE_TRIES) throw error;
    }
  }

  async #takeNonce(): Promise<string> {
    if (this.#nonce === undefined) {
      const { nonce } = await send(this.#newNonce, this.#options.signal, { method: 'HEAD' });
      this.#keepNonce(nonce);
    }
    const nonce = this.#nonce;
    if (nonce === undefined) throw new AcmeError(`${this.#newNonce} gave no nonce`);
    this.#nonce = undefined;
    return nonce;
  }

  #keepNonce(nonce: string | null): void {
    if (nonce !== null && NONCE.test(nonce)) this.#nonce = nonce;
  }
}

/** Reads a resource without a signature, such as the directory. @throws AcmeError */
export async function getUnsigned(url: string, signal: AbortSignal): Promise<AcmeAnswer> {
  const answered = await send(url, signal, { method: 'GET' });
  if (answered.status >= 400) throw errorOf(url, answered);
  return answered;
}

/** @throws AcmeError if the answer does not have this form */
export function parseAnswer<T>(url: string, { text }: AcmeAnswer, schema: z.ZodType<T>): T {
  const read = schema.safeParse(tryParseJson(text));
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  throw new AcmeError(`${url} answers not as RFC 8555 requires: ${issue?.path.join('.')}: ${issue?.message}`);
}

async function send(
  url: string,
  ending: AbortSignal,
  { method, body }: { method: string; body?: string },
): Promise<Answered> {
  const headers = {
    'user-agent': 'otela-gateway',
    ...(body !== undefined && { 'content-type': 'application/jose+json' }),
  };
  const signal = AbortSignal.any([ending, AbortSignal.timeout(REQUEST_MS)]);
  try {
    const response = await fetch(url, { method, headers, signal, redirect: 'error', ...(body && { body }) });
    const text = await readTextAtMost(response.body, ANSWER_MAX_BYTES);
    if (text === undefined) throw new AcmeError(`${url} answers with more than ${ANSWER_MAX_BYTES} bytes`);
    return {
      status: response.status,
      text,
      nonce: response.headers.get('replay-nonce'),
      location: response.headers.get('location') ?? undefined,
      retryAfterMs: retryAfterMs(response.headers.get('retry-after'), Date.now()),
    };
  } catch (cause) {
    if (cause instanceof AcmeError) throw cause;
    throw new AcmeError(`${url} does not answer: ${causeText(cause)}`);
  }
}

function errorOf(url: string, { status, text, retryAfterMs: waitMs }: Answered): AcmeError {
  const problem = problemIn(text);
  if (problem === undefined || problem.type === '') return new AcmeError(`${url} answers ${status}`);
  return refusal(new URL(url).pathname, problem, waitMs);
}

/** Parses seconds or a date (RFC 9110 §10.2.3). */
function retryAfterMs(header: string | null, now: number): number {
  if (header === null) return 0;
  const ms = /^\d{1,9}$/.test(header) ? Number(header) * 1_000 : Date.parse(header) - now;
  return Number.isFinite(ms) ? Math.min(Math.max(ms, 0), RETRY_AFTER_MAX_MS) : 0;
}

/**
 * A request's reservation of its limits. It is made before a node is called, and settled when the response has ended.
 */

import type { ParsedRequest } from '../../../shared/attempts/parsed-request.ts';
import { responseTokenBound } from '../../../shared/attempts/token-bound.ts';
import { ApiError, retryAfter } from '../../../shared/openai/api-errors.ts';
import type { Endpoint } from '../../../shared/openai/endpoints.ts';
import { quoteForMessage } from '../../../shared/openai/quote-for-message.ts';
import type { ClientDisconnect } from '../../../shared/proxy/client-disconnect.ts';
import type { RequestResult, HeldReservation as Reservation } from '../../../shared/proxy/proxy-host.ts';
import type { Env } from '../../env.ts';
import type { HttpRequest } from '../../http/http-request.ts';
import { limitsConcurrency } from '../../settings/limits-schema.ts';
import type { AccountLimits } from '../account.ts';
import type { LimitRefusal, LimitVerdict } from './limiter.ts';
import type { MediaAmount } from './month-amounts.ts';
import type { TokenForecast } from './token-estimator.ts';

/** Header with the maximum number of tokens of the response, for a body that the gateway does not read. */
const MAX_TOKENS_HEADER = 'x-otela-max-tokens';
const MAX_TOKENS_DIGITS = 9;

/** Forecasts a request's tokens before it runs. @throws ApiError 400 if the header is not a number */
export function forecastTokens(
  request: Pick<HttpRequest, 'headers'>,
  { usage, generates }: Pick<Endpoint, 'usage' | 'generates'>,
  { body, unseen, sampling }: Pick<ParsedRequest, 'body' | 'unseen' | 'sampling'>,
): TokenForecast {
  const announced = Number(request.headers.get('content-length') ?? Number.NaN);
  const length = unseen ? announced : body.kind === 'kept' ? body.bytes.length : Number.NaN;
  const statedMax = unseen ? readHeader(request) : sampling?.max_tokens;
  return {
    bodyBytes: Number.isNaN(length) ? undefined : length,
    maxTokens: responseTokenBound(statedMax, sampling?.n),
    counts: usage === 'none' ? 'nothing' : generates ? 'answer' : 'prompt',
  };
}

function readHeader({ headers }: Pick<HttpRequest, 'headers'>): number | undefined {
  const given = headers.get(MAX_TOKENS_HEADER);
  if (given === null) return undefined;
  if (/^\d+$/.test(given) && given.length <= MAX_TOKENS_DIGITS) return Number(given);
  throw new ApiError('invalid_request', `${MAX_TOKENS_HEADER} must be a number of tokens.`, {
    param: MAX_TOKENS_HEADER,
  });
}

interface LimitedAccount {
  keyId: string;
  limits: AccountLimits;
}

interface Context {
  env: Env;
  ctx: { waitUntil(work: Promise<unknown>): void };
}

interface LimitedRequest {
  forecast: TokenForecast;
  /** The amount of a month that the endpoint uses in addition to GPU time; undefined: none. */
  media: MediaAmount | undefined;
  /** Internal id of the request, which streams and usage records also contain. */
  name: string;
  /** The requested model. Its limits count the request even if another model answers in its place. */
  model: string;
  client: ClientDisconnect;
  /** Returns how many attempts may have reached an engine. The nodes of these attempts report usage. */
  attempts(): number;
}

/**
 * @throws ApiError 429 if a limit is reached; 503 if the limits object does not answer, because an unknown limit must
 * not count as no limit
 */
export async function reserve(
  context: Context,
  { limits, keyId }: LimitedAccount,
  { forecast, media, name, model, client, attempts }: LimitedRequest,
): Promise<LimitReservation> {
  const { subject, ...sets } = limits;
  const { LIMITS, PROCESSES } = context.env;
  const served = PROCESSES === undefined ? {} : { process: PROCESSES.incarnation };
  const asked = { ...forecast, ...served, ...(media && { media }), name, keyId, ...sets, model };
  const ask = () => LIMITS.getByName(subject).reserve(asked);
  // A call breaks if the process of the object ends. The object counts a name once.
  const verdict = ask().catch(ask);
  const reservation = new LimitReservation(context, limits, name, verdict);
  // If the client disconnects, the request ends immediately and no `finally` runs, so this handler releases it.
  client.on(() => reservation.release({ attempts: attempts(), isComplete: false }));
  await reservation.granted();
  return reservation;
}

export class LimitReservation implements Reservation {
  readonly #context: Context;
  readonly #subject: string;
  readonly #name: string;
  readonly #verdict: Promise<LimitVerdict>;
  /** True if a limit on concurrent requests applies: other requests may wait for the end of this request. */
  readonly concurrent: boolean;
  /** Rate-limit headers of the response: the remaining amounts of the limits. */
  headers: Readonly<Record<string, string>> = {};
  #finished = false;

  constructor(context: Context, limits: AccountLimits, name: string, verdict: Promise<LimitVerdict>) {
    this.#context = context;
    this.#subject = limits.subject;
    this.#name = name;
    this.#verdict = verdict;
    this.concurrent = limitsConcurrency([limits.key, limits.user, limits.project]);
  }

  /** Resolves when the request is granted. @throws ApiError 429 if a limit is reached, 503 */
  async granted(): Promise<void> {
    const verdict = await this.#verdict.catch((cause: unknown) => {
      const message = 'The limits of this key cannot be checked now. Try again shortly.';
      throw new ApiError('server_is_overloaded', message, { cause });
    });
    if (!verdict.granted) {
      this.#finished = true;
      throw refusal(verdict);
    }
    this.headers = verdict.headers;
  }

  /** Called when the response has ended, or when there will be none. Idempotent. */
  release({ attempts, isComplete }: RequestResult): void {
    if (this.#finished) return;
    this.#finished = true;
    // Saves a call: the usage report of the only attempt also ends the request in the limits object, and no request
    // waits for its place.
    if (attempts === 1 && isComplete && !this.concurrent) return;
    const released = this.#verdict.then(() =>
      this.#context.env.LIMITS.getByName(this.#subject).release(this.#name, attempts),
    );
    this.#context.ctx.waitUntil(released.catch(() => {})); // if this call fails, the settlement or the lease ends the request
  }
}

const LIMIT_OWNERS = { key: 'this key', user: 'this user', project: "this key's project" };

function refusal({ scope, model, shortage, waitMs, headers }: LimitRefusal): ApiError {
  const whose = `${LIMIT_OWNERS[scope]}${model === undefined ? '' : ` for the model '${quoteForMessage(model)}'`}`;
  const later = { headers: { ...headers, ...retryAfter(Math.max(waitMs, 1_000)) } };
  switch (shortage.kind) {
    case 'month':
      if (!shortage.running)
        return new ApiError('insufficient_quota', `The tokens of ${whose} for this month are used up.`, { headers });
      return new ApiError(
        'rate_limit_exceeded',
        `Running requests have reserved the remaining tokens of ${whose} for this month.`,
        later,
      );
    case 'gpu-month': {
      const message = `The ${shortage.limit} GPU seconds of ${whose} for this month are used up.`;
      return new ApiError('insufficient_quota', message, { headers });
    }
    case 'audio-month': {
      const message = `The ${shortage.limit} seconds of audio of ${whose} for this month are used up.`;
      return new ApiError('insufficient_quota', message, { headers });
    }
    case 'images-month': {
      const message = `The ${shortage.limit} images of ${whose} for this month are used up.`;
      return new ApiError('insufficient_quota', message, { headers });
    }
    case 'answer': {
      const message = `The response may have ${shortage.maxTokens} tokens, but the limit of ${whose} is ${shortage.limit} per minute: lower max_tokens.`;
      const never = { ...headers, 'x-should-retry': 'false' };
      return new ApiError('rate_limit_exceeded', message, { param: 'max_tokens', headers: never });
    }
    case 'concurrent':
      return new ApiError('rate_limit_exceeded', `${shortage.limit} requests of ${whose} are already running.`, later);
    case 'requests':
    case 'tokens': {
      const message = `The limit of ${shortage.limit} ${shortage.kind} per minute of ${whose} is reached.`;
      return new ApiError('rate_limit_exceeded', message, later);
    }
  }
}

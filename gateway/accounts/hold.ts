/** A request's place within its limits: asked for beside the reading of its body, given back when its answer is over. */

import type { Endpoint } from '../../shared/openai/endpoints.ts';
import { ApiError, retryAfter } from '../../shared/openai/errors.ts';
import type { Env } from '../env.ts';
import type { HttpAnswer, HttpRequest } from '../http.ts';
import type { AccountLimits } from './account.ts';
import type { Verdict } from './limits-object.ts';

/** Bytes of a request per token: what is known of it before it is read. */
const BYTES_PER_TOKEN = 4;
/** For the answer, whose length nobody knows, and for bodies that do not say how long they are. */
const ANSWER_TOKENS = 256;
const UNKNOWN_TOKENS = 1_024;
/** Longer contexts are rare, and larger bodies are pictures: no request takes a whole project's minute by its length alone. */
const ESTIMATE_MAX_TOKENS = 131_072;

/** What a request will use, as far as its head tells. */
export function tokensAhead({ usage }: Pick<Endpoint, 'usage'>, contentLength: string | null): number {
  if (usage === 'none') return 0;
  const bytes = Number(contentLength ?? Number.NaN);
  const tokens = Number.isNaN(bytes) ? UNKNOWN_TOKENS : Math.ceil(bytes / BYTES_PER_TOKEN) + ANSWER_TOKENS;
  return Math.min(tokens, ESTIMATE_MAX_TOKENS);
}

interface LimitedAccount {
  keyId: string;
  limits: AccountLimits;
}

interface Asker {
  env: Env;
  ctx: { waitUntil(work: Promise<unknown>): void };
}

export class Hold {
  readonly #asker: Asker;
  readonly #subject: string;
  readonly #name: string;
  /** Errors are kept for whoever waits: nobody may be there yet. */
  readonly #verdict: Promise<{ verdict: Verdict } | { error: unknown }>;
  /** Whether anybody else waits for its place. */
  readonly concurrent: boolean;
  #over = false;

  constructor(asker: Asker, request: HttpRequest, endpoint: Endpoint, account: LimitedAccount, name: string) {
    const { limits, keyId } = account;
    this.#asker = asker;
    this.#subject = limits.subject;
    this.#name = name;
    this.concurrent = [limits.key, limits.project].some((one) => one?.concurrent_requests !== undefined);
    const tokens = tokensAhead(endpoint, request.headers.get('content-length'));
    const asked = { name, keyId, key: limits.key, project: limits.project, tokens };
    this.#verdict = this.#object()
      .reserve(asked)
      .then(
        (verdict) => ({ verdict }),
        (error: unknown) => ({ error }),
      );
    // A client that leaves ends its request where it stands.
    if (this.concurrent) request.signal.addEventListener('abort', () => this.release(true));
  }

  /** Gives the place back where the body is refused. */
  async during<T>(reading: Promise<T>): Promise<T> {
    try {
      return await reading;
    } catch (error) {
      this.release(false);
      throw error;
    }
  }

  /** Headers for the answer. @throws ApiError 429; 503 where nobody can count: unknown is not unlimited */
  async granted(): Promise<Record<string, string>> {
    const said = await this.#verdict;
    if ('error' in said) {
      const message = 'The limits of this key cannot be asked. Try again shortly.';
      throw new ApiError('server_is_overloaded', message, { cause: said.error });
    }
    const { verdict } = said;
    if (verdict.granted) return verdict.headers;
    this.#over = true;
    throw refusal(verdict);
  }

  /** The answer is over, or there will be none; `used`: an engine was asked, and its node will say what for. Idempotent. */
  release(used: boolean): void {
    if (this.#over) return;
    if (used && !this.concurrent) return; // nobody waits for its place, and its settlement ends it
    this.#over = true;
    const released = this.#verdict.then(() => this.#object().release(this.#name, used));
    this.#asker.ctx.waitUntil(released.catch(() => {})); // its settlement or its lease frees the place too
  }

  /** `answer` under the limits' headers; it gives the place back when it has been read, or left. */
  until(answer: HttpAnswer, headers: Record<string, string> = {}): HttpAnswer {
    Object.assign(answer.headers, headers);
    const { body } = answer;
    if (!this.concurrent || !(body instanceof ReadableStream)) {
      this.release(true);
      return answer;
    }
    const { readable, writable } = new IdentityTransformStream();
    void this.#pump(body.getReader(), writable.getWriter());
    return { ...answer, body: readable };
  }

  /** By hand: `pipeTo` between two streams of workerd resolved at once here, and cut the answer. */
  async #pump(reader: ReadableStreamDefaultReader<Uint8Array>, writer: WritableStreamDefaultWriter<Uint8Array>) {
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) {
          this.release(true); // before the end: the client's next request is not to overtake it
          return await writer.close();
        }
        await writer.write(value);
      }
    } catch (error) {
      this.release(true);
      await Promise.allSettled([reader.cancel(error), writer.abort(error)]);
    }
  }

  #object() {
    return this.#asker.env.LIMITS.getByName(this.#subject);
  }
}

function refusal({ scope, shortage, headers }: Extract<Verdict, { granted: false }>): ApiError {
  const whose = scope === 'key' ? 'this key' : "this key's project";
  switch (shortage.kind) {
    case 'month':
      return new ApiError('insufficient_quota', `The tokens of ${whose} for this month are used up.`, { headers });
    case 'concurrent':
      return new ApiError('rate_limit_exceeded', `${shortage.limit} requests of ${whose} are running already.`, {
        headers: { ...headers, ...retryAfter(1_000) },
      });
    case 'requests':
    case 'tokens':
      return new ApiError(
        'rate_limit_exceeded',
        `The limit of ${shortage.limit} ${shortage.kind} per minute of ${whose} is reached.`,
        { headers: { ...headers, ...retryAfter(shortage.waitMs) } },
      );
  }
}

import type { ApiError } from '../../shared/openai/errors.ts';
import type { ProxyRequest } from '../../shared/proxy/message.ts';
import type { Env } from '../env.ts';
import type { Background } from '../object-context.ts';
import { type LoggedRequest, RequestLog } from '../observe/request-log.ts';
import { recordRefusal } from '../usage/refused.ts';

interface Context {
  env: Env;
  ctx: Background;
}

/** Counters and log as `RequestLog` keeps them, and the usage row of a request that no engine saw. */
export class GatewayRecord extends RequestLog {
  readonly #request: ProxyRequest;
  readonly #context: Context;

  constructor(seen: Readonly<LoggedRequest>, request: ProxyRequest, context: Context) {
    super(seen, request, request.client, context);
    this.#request = request;
    this.#context = context;
  }

  override refused(error: unknown): void {
    super.refused(error);
    this.#recordRefusal(error);
  }

  override refusedLate(told: ApiError, cause: unknown): void {
    super.refusedLate(told, cause);
    this.#recordRefusal(cause);
  }

  /** Of a client that left, the queue or its node keeps the record. */
  #recordRefusal(error: unknown): void {
    const { env, ctx } = this.#context;
    if (!this.#request.client.left) recordRefusal(this.seen, error, this.queuedMs, env, ctx);
  }
}

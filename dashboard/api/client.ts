/** Requests to the gateway that served this page. The session cookie identifies the user; the page holds no key. */
import createClient from 'openapi-fetch';
import * as z from 'zod/mini';
import { t } from '../texts/index.ts';
import { basePath, gatewayUrl } from './base-path.ts';
import type { paths } from './contract.ts';
import { IdempotencyKeys } from './idempotency-keys.ts';

const envelope = z.object({
  error: z.object({
    message: z.string(),
    // The gateway sends a text; some engines send a number.
    code: z.optional(z.nullable(z.union([z.string(), z.number()]))),
  }),
});
/** Error forms of FastAPI and of other engines. */
const otherForms = z.union([
  z.pipe(
    z.object({ detail: z.string() }),
    z.transform(({ detail }) => detail),
  ),
  z.pipe(
    z.object({ message: z.string() }),
    z.transform(({ message }) => message),
  ),
  z.pipe(
    z.object({ error: z.string() }),
    z.transform(({ error }) => error),
  ),
]);

/** An error response of the gateway, or of an engine behind it. */
export class Problem extends Error {
  override readonly name = 'Problem';
  /** HTTP status; 0 if there was no response. */
  readonly status: number;
  readonly code: string;
  constructor(status: number, code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
    this.code = code;
  }
}

/**
 * @param path begins with a slash
 * @throws Problem for an error status, `offline` if there is no response; AbortError
 */
export async function send(path: string | Request, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(typeof path === 'string' ? basePath + path : path, { credentials: 'same-origin', ...init });
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === 'AbortError') throw cause;
    throw new Problem(0, 'offline', t.errors.offline, { cause });
  }
  if (response.ok) return response;
  throw parseProblem(response.status, await response.json().catch(() => undefined));
}

/** `randomUUID` is not used here, because browsers have it only on TLS and on localhost. */
const creations = new IdempotencyKeys(() => crypto.getRandomValues(new Uint32Array(4)).join('-'));

/**
 * Sends a creation with an idempotency key, so that the gateway makes the thing only once. @throws Problem; AbortError
 */
async function sendOnce(request: Request): Promise<Response> {
  if (request.method !== 'POST') return send(request);
  const what = `${request.url}\n${await request.clone().text()}`;
  request.headers.set('idempotency-key', creations.keyOf(what));
  try {
    const response = await send(request);
    creations.answered(what);
    return response;
  } catch (error) {
    // A status below 500 shows that nothing was made. Without a response, or after a server error, the thing may exist.
    if (error instanceof Problem && error.status > 0 && error.status < 500) creations.answered(what);
    throw error;
  }
}

/** Reads an error's body in any of the known forms. */
export function parseProblem(status: number, body: unknown): Problem {
  const said = envelope.safeParse(body).data?.error;
  const message = said?.message ?? otherForms.safeParse(body).data ?? t.errors.answered(status);
  return new Problem(status, String(said?.code ?? ''), message);
}

/**
 * The admin REST API, with its own types: `contract.ts` is generated from the gateway's /openapi.json. Each call
 * returns `data` or throws Problem.
 */
export const gateway = createClient<paths>({ baseUrl: gatewayUrl, fetch: (request) => sendOnce(request) });

/** @throws Problem; ZodError if the gateway has another version. */
export async function readGateway<T>(schema: z.ZodMiniType<T>, path: string, signal?: AbortSignal): Promise<T> {
  const response = await send(path, signal === undefined ? {} : { signal });
  return schema.parse(await response.json());
}

export async function changeGateway<T>(
  schema: z.ZodMiniType<T>,
  method: 'POST' | 'PATCH' | 'PUT' | 'DELETE',
  path: string,
  body?: unknown,
): Promise<T> {
  const json = { 'content-type': 'application/json' };
  const response = await send(path, {
    method,
    ...(body === undefined ? {} : { headers: json, body: JSON.stringify(body) }),
  });
  return schema.parse(response.status === 204 ? undefined : await response.json());
}

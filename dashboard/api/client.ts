/** Requests to the gateway that served this page. The session's cookie says who asks; no key is held here. */
import * as z from 'zod/mini';

const envelope = z.object({ error: z.object({ message: z.string(), code: z.nullable(z.string()) }) });

/** What the gateway said no with. */
export class Problem extends Error {
  override readonly name = 'Problem';
  readonly status: number;
  readonly code: string;
  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** @throws Problem for an answer that is no success, `offline` where there is none. */
export async function send(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { credentials: 'same-origin', ...init });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new Problem(0, 'offline', 'The gateway cannot be reached.');
  }
  if (response.ok) return response;
  const said = envelope.safeParse(await response.json().catch(() => undefined));
  const { message, code } = said.data?.error ?? { message: `The gateway answered ${response.status}.`, code: null };
  throw new Problem(response.status, code ?? '', message);
}

/** @throws Problem; ZodError where the gateway is of another version. */
export async function ask<T>(schema: z.ZodMiniType<T>, path: string, signal?: AbortSignal): Promise<T> {
  const response = await send(path, signal === undefined ? {} : { signal });
  return schema.parse(await response.json());
}

const PAGE = 100;

/** The first `pages` of a list that the gateway gives a hundred at a time, and whether there is more. */
export async function askPages<T extends { id: string }>(
  item: z.ZodMiniType<T>,
  path: string,
  pages: number,
  signal: AbortSignal,
): Promise<{ data: T[]; more: boolean }> {
  const schema = z.object({ data: z.array(item), has_more: z.boolean() });
  const data: T[] = [];
  let more = true;
  for (let n = 0; n < pages && more; n++) {
    const last = data.at(-1);
    const after = last === undefined ? '' : `&after=${encodeURIComponent(last.id)}`;
    const page = await ask(schema, `${path}?limit=${PAGE}${after}`, signal);
    data.push(...page.data);
    more = page.has_more && page.data.length > 0;
  }
  return { data, more };
}

export async function tell<T>(
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

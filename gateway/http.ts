/** A request to models and its answer, as each host has them. */

import type { ClientDisconnect } from '../shared/proxy/client-disconnect.ts';

/** What is read of a request. The runtime's own is one. */
export interface HttpRequest extends Pick<Request, 'method' | 'url' | 'body' | 'signal' | 'arrayBuffer'> {
  readonly headers: Pick<Headers, 'get'>;
  /** Where whoever carries the request says that its client left, `signal` is made only for who needs it: it is the runtime's, and dear. */
  readonly leaving?: ClientDisconnect;
  /** The host writes answers that leave by LOCAL_OUTLETS. */
  readonly offloads?: boolean;
  /** Tells the host that the request's key is valid: its connection is no stranger's. */
  readonly accepted?: () => void;
  /** What Cloudflare tells of a request; elsewhere undefined. */
  readonly cf?: unknown;
}

/** What an answer is made of: its body is whole, or comes. */
export interface HttpAnswer {
  status: number;
  headers: Record<string, string>;
  body: Uint8Array | string | ReadableStream<Uint8Array> | null;
  /** Of a body that comes, where it is known. */
  length?: number | undefined;
  /** `body` is the first data of a stream; the rest leaves by LOCAL_OUTLETS, under this number. */
  rest?: number;
}

/** The engine encoded the body already. Cloudflare's runtime would do so once more. */
const ENCODED: object = { encodeBody: 'manual' };

export function responseOf({ status, headers, body }: HttpAnswer): Response {
  const encoded = headers['content-encoding'] !== undefined;
  return new Response(body as ConstructorParameters<typeof Response>[0], { status, headers, ...(encoded && ENCODED) });
}

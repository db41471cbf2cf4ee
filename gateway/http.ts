/** A request to models and its answer, whichever way they come and go: by the runtime's HTTP, or by the inlet. */

import type { ClientDisconnect } from '../shared/proxy/client-disconnect.ts';

/** What is read of a request. The runtime's own is one. */
export interface HttpRequest extends Pick<Request, 'method' | 'url' | 'body' | 'signal' | 'arrayBuffer'> {
  readonly headers: Pick<Headers, 'get'>;
  /** Where whoever carries the request says that its client left, `signal` is made only for who needs it: it is the runtime's, and dear. */
  readonly leaving?: ClientDisconnect;
  /** The carrier writes an answer that leaves by LOCAL_OUTLETS; without it the runtime's outlet decides. */
  readonly offloads?: boolean;
  /** Tells the host that the request's key is valid: its connection is no stranger's. */
  readonly accepted?: () => void;
  /** Undefined on plain workerd. */
  readonly cf?: unknown;
  /** Whoever carries the answer refuses one that leaves by an outlet, should the client be gone; the runtime just drops it. */
  readonly carrierRefuses?: boolean;
}

/** What an answer is made of: its body is whole, or comes. */
export interface HttpAnswer {
  status: number;
  headers: Record<string, string>;
  body: Uint8Array | string | ReadableStream<Uint8Array> | null;
  /** Of a body that comes, where it is known. */
  length?: number | undefined;
}

/** The engine encoded the body already; workerd would do so once more. Other hosts never do. */
const ENCODED: object = { encodeBody: 'manual' };

export function responseOf({ status, headers, body }: HttpAnswer): Response {
  const encoded = headers['content-encoding'] !== undefined;
  return new Response(body as ConstructorParameters<typeof Response>[0], { status, headers, ...(encoded && ENCODED) });
}

/** A request to models and its answer, as each host has them. */

import type { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import type { ProxyResponse } from '../../shared/proxy/message.ts';

/**
 * A stream whose writes finish when the reader has taken them: nothing is buffered between the two ends. workerd has one that runs without
 * JavaScript for each chunk; elsewhere it is a TransformStream as the standard makes it.
 */
function pipe(): { readable: ReadableStream<Uint8Array>; writable: WritableStream<Uint8Array> } {
  const native: unknown = Reflect.get(globalThis, 'IdentityTransformStream');
  if (typeof native !== 'function') return new TransformStream<Uint8Array, Uint8Array>();
  return Reflect.construct(native, []) as TransformStream<Uint8Array, Uint8Array>;
}

/** What is read of a request. The runtime's own is one. */
export interface HttpRequest extends Pick<Request, 'method' | 'url' | 'body' | 'signal' | 'arrayBuffer'> {
  readonly headers: Pick<Headers, 'get'>;
  /** The whole body where it came with the head. `body` is null then. */
  readonly whole?: Uint8Array | undefined;
  /** Set by a host that reports the client's disconnect itself. Then `signal`, a costly object of the runtime, is made only on demand. */
  readonly client?: ClientDisconnect;
  /** The host writes offloaded answers (LOCAL_OFFLOADS). */
  readonly offloads?: boolean;
  /** Tells the host that the request's key is valid, and whose it is: its connection is no stranger's. */
  readonly accepted?: (holder: string) => void;
  /** The body as the host itself has it, to be read instead of `body`: Fetch's streams cost as much as all else that an upload needs. */
  readonly pieces?: () => AsyncIterator<Uint8Array>;
  /** What Cloudflare tells of a request; elsewhere undefined. */
  readonly cf?: unknown;
}

/** What an answer is made of: its body is whole, or comes. */
interface HttpAnswer {
  status: number;
  headers: Record<string, string>;
  body: Uint8Array | string | ReadableStream<Uint8Array> | null;
  /** Of a body that comes, where it is known. */
  length?: number | undefined;
}

/** The pipeline's response for a carrier that reads streams. */
function streamed(response: ProxyResponse): HttpAnswer {
  const { body } = response;
  if (typeof body !== 'function') return { ...response, body };
  const { readable, writable } = pipe();
  const writer = writable.getWriter();
  void body({
    write: (bytes) => writer.write(bytes),
    end: () => writer.close(),
    abort: (reason) => writer.abort(reason),
  });
  return { ...response, body: readable };
}

/** The engine encoded the body already. Cloudflare's runtime would do so once more. */
const ENCODED: object = { encodeBody: 'manual' };

export function responseOf(response: ProxyResponse): Response {
  const { status, headers, body } = streamed(response);
  const encoded = headers['content-encoding'] !== undefined;
  return new Response(body as ConstructorParameters<typeof Response>[0], { status, headers, ...(encoded && ENCODED) });
}

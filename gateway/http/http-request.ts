/** A request to the gateway and its response, in the form that all hosts provide. */

import type { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import type { ProxyResponse } from '../../shared/proxy/proxy-http-types.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';

/**
 * Returns a stream with writes that finish when the reader has taken the bytes: nothing is buffered between the two
 * ends. workerd has such a stream that runs without JavaScript for each chunk; on other hosts it is a standard
 * TransformStream.
 */
function pipe(): { readable: ReadableStream<Uint8Array>; writable: WritableStream<Uint8Array> } {
  const native: unknown = Reflect.get(globalThis, 'IdentityTransformStream');
  if (typeof native !== 'function') return new TransformStream<Uint8Array, Uint8Array>();
  return Reflect.construct(native, []) as TransformStream<Uint8Array, Uint8Array>;
}

/** The members of a request that the gateway reads. The runtime's Request has them. */
export interface HttpRequest extends Pick<Request, 'method' | 'url' | 'body' | 'signal' | 'arrayBuffer'> {
  readonly headers: Pick<Headers, 'get'>;
  /** The whole body, if it arrived with the head; `body` is then null. */
  readonly whole?: Uint8Array | undefined;
  /**
   * Set by a host that reports the client's disconnect itself. Then `signal`, which is expensive to create, is only
   * created on demand.
   */
  readonly client?: ClientDisconnect;
  /** True if the host writes offloaded responses (LOCAL_OFFLOADS). */
  readonly offloads?: boolean;
  /**
   * Called with the key's holder when the request's key is valid. The connection then no longer counts as
   * unauthenticated.
   */
  readonly accepted?: (holder: string) => void;
  /**
   * The body in the pieces that the host reads. If set, it is read instead of `body`: a Fetch stream would double the
   * processor time of an upload.
   */
  readonly pieces?: () => AsyncIterator<Uint8Array>;
  /** Cloudflare's data about a request; undefined on other hosts. */
  readonly cf?: unknown;
}

/** A response with a whole body or a stream. */
interface HttpAnswer {
  status: number;
  headers: Record<string, string>;
  body: Uint8Array | string | ReadableStream<Uint8Array> | null;
  /** Bytes of a streaming body; absent: unknown. */
  length?: number | undefined;
}

/** Converts the pipeline's response to one with a ReadableStream as its body. */
function streamed(response: ProxyResponse): HttpAnswer {
  const { body } = response;
  if (typeof body !== 'function') return { ...response, body };
  const { readable, writable } = pipe();
  const writer = writable.getWriter();
  neverRejects(
    body({
      write: (bytes) => writer.write(bytes),
      end: () => writer.close(),
      abort: (reason) => writer.abort(reason),
    }),
  );
  return { ...response, body: readable };
}

/** Option that says that the body is encoded already. Without it, Cloudflare's runtime would encode it again. */
const ENCODED: object = { encodeBody: 'manual' };

export function responseOf(response: ProxyResponse): Response {
  const { status, headers, body } = streamed(response);
  const encoded = headers['content-encoding'] !== undefined;
  return new Response(body as ConstructorParameters<typeof Response>[0], { status, headers, ...(encoded && ENCODED) });
}

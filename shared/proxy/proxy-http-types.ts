/**
 * A request to a model and its response, as every host represents them. They do not use classes of the Fetch standard.
 */
import type { ClientDisconnect } from './client-disconnect.ts';

/** Reads a request's body once. */
export interface BodyReader {
  /** The next bytes; undefined at the end. Rejects if the body breaks off. */
  read(): Promise<Uint8Array | undefined>;
  /** Discards the rest. Nothing reads it any more. */
  cancel(): Promise<void>;
  /** Ends this reader without discarding the rest. Another reader may continue. */
  release(): void;
}

export interface BodySource {
  /** The whole body, if it arrived with the head. Then no reader is needed. */
  readonly whole: Uint8Array | undefined;
  /** A reader of the body. Undefined if there is no body, or if an earlier reader was not released. */
  reader(): BodyReader | undefined;
}

export interface ProxyRequest {
  readonly method: string;
  /** Path without the query. */
  readonly path: string;
  /** The URL's query, with its `?`. Absent: the host does not know it. */
  query?(): string;
  /** @param name header name in lower case */
  header(name: string): string | null | undefined;
  /**
   * Set if the host accepts the client's WebSocket. `body` then has the client's messages as records. `model`: the
   * model in the URL; empty if there is none.
   */
  readonly webSocket?: { readonly model: string };
  readonly body: BodySource;
  readonly client: ClientDisconnect;
}

/** Receives a response's bytes. */
export interface ResponseSink {
  /**
   * Resolves when the client's side has taken the bytes, so that the engine's response is not read faster than the
   * client reads. Rejects if the client disconnected.
   */
  write(bytes: Uint8Array): Promise<void> | void;
  /** Ends the response cleanly. Rejects if the client disconnected. */
  end(): Promise<void> | void;
  /** Breaks the response off, so that the client does not consider the received part complete. */
  abort(reason: unknown): Promise<void> | void;
}

/** Writes a body as it arrives. Call it once; it never rejects. */
export type WriteBody = (sink: ResponseSink) => Promise<void>;

export interface ProxyResponse {
  status: number;
  headers: Record<string, string>;
  /** A ReadableStream is the engine's body, which the host's runtime passes on without the pipeline. */
  body: Uint8Array | string | null | ReadableStream<Uint8Array> | WriteBody;
  /** Length of a ReadableStream in bytes, if it is known. */
  length?: number | undefined;
  /** Number under which the host finds the rest of a stream. `body` is the first data of this stream. */
  rest?: number;
}

/** A request to a model and its response, as every host gives and takes them. None of them is a class of the Fetch standard. */
import type { ClientDisconnect } from './client-disconnect.ts';

/** Reads a request's body once. */
export interface BodyReader {
  /** The next bytes, undefined at the end. Rejects where the body breaks off. */
  read(): Promise<Uint8Array | undefined>;
  /** Gives up the rest: nothing reads it any more. */
  cancel(): Promise<void>;
  /** Another reader may go on. */
  release(): void;
}

export interface BodySource {
  /** The whole body, if it came with the head. Then no reader is needed. */
  readonly whole: Uint8Array | undefined;
  /** Undefined if there is no body, or if another reader has not released it. */
  reader(): BodyReader | undefined;
}

export interface ProxyRequest {
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  /** `name` in lower case. */
  header(name: string): string | null | undefined;
  readonly body: BodySource;
  readonly client: ClientDisconnect;
}

/** Takes a response's bytes. */
export interface ResponseSink {
  /** Done when the client's side took the bytes, so the engine's answer is not read ahead of it. Fails when the client has left. */
  write(bytes: Uint8Array): Promise<void> | void;
  /** The clean end. Fails when the client has left. */
  end(): Promise<void> | void;
  /** Breaks the response off, so that no client takes half a body for the whole. */
  abort(reason: unknown): Promise<void> | void;
}

/** Writes a body as it comes. Call it once; it never rejects. */
export type WriteBody = (sink: ResponseSink) => Promise<void>;

export interface ProxyResponse {
  status: number;
  headers: Record<string, string>;
  /** A ReadableStream is the engine's body, which its host's runtime passes on by itself. */
  body: Uint8Array | string | null | ReadableStream<Uint8Array> | WriteBody;
  /** Bytes of a ReadableStream, where that is known. */
  length?: number | undefined;
  /** `body` is the first data of a stream; the host has the rest, under this number. */
  rest?: number;
}

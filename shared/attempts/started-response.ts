import { MESSAGE_RECORDS_TYPE } from '../openai/realtime/message-records.ts';
import { SEALED_STREAM_TYPE } from '../seal/hpke-suite.ts';
import type { HeaderList } from '../wire/header-codec.ts';
import type { AttemptHead } from './attempt-request.ts';

/** Statuses without a response body (RFC 9110 §6.4.1). */
export const NO_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

/**
 * A non-streaming answer up to this size is sent only when it is complete, so that a truncated answer can be retried at
 * another node.
 */
const UNARY_BUFFER_BYTES = 1024 * 1024;

/** An engine's answer after its head arrived, as the caller reads it. */
export interface ResponseStream {
  readonly status: number;
  readonly head: AttemptHead;
  /**
   * The complete body, if all of it arrived, or a stream of it. It can be passed on without `read`, and its known
   * length shows whether a pipe broke on the way. Undefined if the body still arrives or was partly read.
   */
  readonly whole?: Uint8Array | ReadableStream<Uint8Array> | null | undefined;
  /** Length in bytes of a streaming `whole`, if it is known. */
  readonly length?: number | undefined;
  /** Handle for the rest of a stream that the host itself writes to the client, without the request pipeline. */
  readonly offload?: ResponseOffloadHandle | undefined;
  /** Returns the next bytes; undefined at the complete end. @throws AttemptError if the rest is lost */
  read(): Promise<Uint8Array | undefined>;
  /** The reader stops, which cancels the engine's work. Idempotent, and without effect after the end. */
  cancel(): Promise<void> | void;
}

export interface ResponseOffloadHandle {
  /** The number under which the host finds the rest. */
  readonly rest: number;
  /** Resolves when the rest was sent. @throws AttemptError if it broke off, another error if the client disconnected */
  over(): Promise<void>;
}

/** An answer that may be sent to the client, with the chunks that were already read. */
export interface StartedResponse<A extends ResponseStream> {
  answer: A;
  chunks: Uint8Array[];
  /** True if no data follows the chunks. */
  complete: boolean;
}

/** True for `text/event-stream`. Media types are case-insensitive (RFC 9110 §8.3.1). */
export function isEventStreamType(contentType: string): boolean {
  return /^text\/event-stream\b/i.test(contentType);
}

/** True for an event stream, sealed or not. */
export function isEventStream({ headers }: { headers: HeaderList }): boolean {
  const type = headers.find(([name]) => name === 'content-type');
  return type !== undefined && (isEventStreamType(type[1]) || type[1] === SEALED_STREAM_TYPE);
}

/**
 * True for media that clients play or store as it arrives, such as speech, and for messages of a WebSocket. They are
 * sent to the client from the first byte on.
 */
function isMedia({ headers }: { headers: HeaderList }): boolean {
  const type = headers.find(([name]) => name === 'content-type');
  return type !== undefined && (/^(?:audio|video)\//i.test(type[1]) || type[1] === MESSAGE_RECORDS_TYPE);
}

/**
 * Reads enough of an answer to start sending it: the first data of an event stream or of media, otherwise all of it up
 * to 1 MiB. @throws AttemptError if the answer breaks before that
 */
export async function startResponse<A extends ResponseStream>(answer: A): Promise<StartedResponse<A>> {
  const chunks: Uint8Array[] = [];
  const held = isEventStream(answer.head) || isMedia(answer.head) ? 0 : UNARY_BUFFER_BYTES;
  try {
    for (let bytes = 0; bytes <= held; ) {
      const chunk = await answer.read();
      if (chunk === undefined) return { answer, chunks, complete: true };
      chunks.push(chunk);
      bytes += chunk.length;
    }
  } catch (error) {
    await answer.cancel();
    throw error;
  }
  return { answer, chunks, complete: false };
}

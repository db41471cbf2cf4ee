import { SEALED_STREAM_TYPE } from '../seal/hpke-suite.ts';
import type { HeaderList } from '../wire/header-codec.ts';
import type { AttemptHead } from './attempt-request.ts';

/** Statuses without a body (RFC 9110 §6.4.1). */
export const NO_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

/** A unary answer up to this size is sent only when complete, so that a truncated one can be retried elsewhere. */
const UNARY_BUFFER_BYTES = 1024 * 1024;

/** An engine's answer whose head has arrived, as its caller reads it. */
export interface ResponseStream {
  readonly status: number;
  readonly head: AttemptHead;
  /**
   * The body, if it arrived completely: it need not be read here, and its length keeps a broken pipe from looking like
   * an end. Undefined if it still streams, or was partly read.
   */
  readonly whole?: Uint8Array | ReadableStream<Uint8Array> | null | undefined;
  /** Length of a streaming `whole`, if known. */
  readonly length?: number | undefined;
  /** The rest of a stream that the host writes to the client, bypassing the pipeline. */
  readonly offload?: ResponseOffloadHandle | undefined;
  /** The next bytes, or undefined at the complete end. @throws AttemptError if the rest is lost */
  read(): Promise<Uint8Array | undefined>;
  /** The reader stops, so the engine's work is cancelled. Idempotent, and without effect after the end. */
  cancel(): Promise<void> | void;
}

export interface ResponseOffloadHandle {
  /** The number by which the host finds the rest. */
  readonly rest: number;
  /** Resolves when the rest was sent. @throws AttemptError if it broke off, anything else if the client left */
  over(): Promise<void>;
}

/** An answer that may be sent, with the part that was already read. */
export interface StartedResponse<A extends ResponseStream> {
  answer: A;
  chunks: Uint8Array[];
  /** Nothing follows the chunks. */
  complete: boolean;
}

/** Media types are case-insensitive (RFC 9110 §8.3.1). */
export function isEventStreamType(contentType: string): boolean {
  return /^text\/event-stream\b/i.test(contentType);
}

/** True for a sealed event stream, too. */
export function isEventStream({ headers }: { headers: HeaderList }): boolean {
  const type = headers.find(([name]) => name === 'content-type');
  return type !== undefined && (isEventStreamType(type[1]) || type[1] === SEALED_STREAM_TYPE);
}

/** Media that is played or stored as it arrives, such as speech: the listener waits for the first byte. */
function isMedia({ headers }: { headers: HeaderList }): boolean {
  const type = headers.find(([name]) => name === 'content-type');
  return type !== undefined && /^(?:audio|video)\//i.test(type[1]);
}

/**
 * Reads enough of an answer to start sending it: the first data of an event stream or of audio, otherwise all of it up
 * to 1 MiB.
 * @throws AttemptError if it breaks before that
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

import { SEALED_STREAM_TYPE } from '../seal/suite.ts';
import type { HeaderList } from '../wire/headers.ts';
import type { AttemptHead } from './attempt.ts';

/** Statuses that cannot carry a body (RFC 9110 §6.4.1). */
export const NO_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

/** A unary answer up to this size goes out only when it is complete, so that a truncated one can be repeated elsewhere. */
const UNARY_HELD_BYTES = 1024 * 1024;

/** An engine's answer whose head is there, as its caller reads it. */
export interface ResponseStream {
  readonly status: number;
  readonly head: AttemptHead;
  /**
   * The body where it came whole: nothing of it need be read here, and its length keeps a broken pipe from looking like an end.
   * Undefined where it still streams, or where it has been read from.
   */
  readonly whole?: Uint8Array | ReadableStream<Uint8Array> | null | undefined;
  /** Bytes of a `whole` that streams, where that is known. */
  readonly length?: number | undefined;
  /** The rest of a stream that its host writes to the client past the pipeline. */
  readonly offload?: Offload | undefined;
  /** The next bytes, or undefined at the complete end. @throws AttemptError when the rest cannot be had */
  read(): Promise<Uint8Array | undefined>;
  /** The reader stops: the engine's work is cancelled. Idempotent, and of no effect after the end. */
  cancel(): Promise<void> | void;
}

export interface Offload {
  /** By this number the host finds the rest. */
  readonly rest: number;
  /** Resolves when the rest went out. @throws AttemptError when it broke off, anything else when the client has left */
  over(): Promise<void>;
}

/** An answer that may go out, with what was read of it already. */
export interface StartedResponse<A extends ResponseStream> {
  answer: A;
  chunks: Uint8Array[];
  /** Nothing follows the chunks. */
  complete: boolean;
}

/** A media type is written in any case (RFC 9110 §8.3.1). */
export function isEventStreamType(contentType: string): boolean {
  return /^text\/event-stream\b/i.test(contentType);
}

/** Also one that is sealed. */
export function isEventStream({ headers }: { headers: HeaderList }): boolean {
  const type = headers.find(([name]) => name === 'content-type');
  return type !== undefined && (isEventStreamType(type[1]) || type[1] === SEALED_STREAM_TYPE);
}

/** What is played or written to disk as it comes: speech, whose listener waits for the first byte. */
function isMedia({ headers }: { headers: HeaderList }): boolean {
  const type = headers.find(([name]) => name === 'content-type');
  return type !== undefined && /^(?:audio|video)\//i.test(type[1]);
}

/**
 * Reads so much of an answer that it may go out: the first data of an event stream or of audio, else all of it up to 1 MiB.
 * @throws AttemptError when it breaks before that
 */
export async function startResponse<A extends ResponseStream>(answer: A): Promise<StartedResponse<A>> {
  const chunks: Uint8Array[] = [];
  const held = isEventStream(answer.head) || isMedia(answer.head) ? 0 : UNARY_HELD_BYTES;
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

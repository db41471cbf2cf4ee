import type { OpenFrame } from '../wire/frames.ts';
import type { AttemptRequest } from './attempt.ts';

const encoder = new TextEncoder();

/** What differs between openings of one attempt. */
interface Opening {
  stream: number;
  /** Claim only: it was accepted before. */
  resume: boolean;
  /** Bytes of the answer that are here. */
  from: number;
  /** Of the request's body; undefined: it streams without a length. */
  bodyLength: number | undefined;
}

/** The frame that opens an attempt, or claims what is left of it. */
export function openFrameOf(request: AttemptRequest, { stream, resume, from, bodyLength }: Opening): OpenFrame {
  return {
    type: 'open',
    stream,
    resume,
    requestId: request.requestId,
    attempt: request.attempt,
    answerOffset: from,
    endpoint: request.endpoint,
    headers: request.headers,
    edits: request.edits.map((edit) => ({ ...edit, insert: encoder.encode(edit.insert) })),
    streaming: request.streaming,
    dropUsage: request.dropUsage,
    firstByteMs: request.firstByteMs,
    stallMs: request.stallMs,
    receipt: request.proof === undefined ? request.receipt : `${request.proof}\n${request.receipt}`,
    ...(request.prefixes === true && { prefixes: true }),
    bodyLength,
  };
}

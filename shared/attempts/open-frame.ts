import type { OpenFrame } from '../wire/frames.ts';
import type { AttemptRequest } from './attempt-request.ts';

const encoder = new TextEncoder();

/** The values that differ between the openings of one attempt. */
interface Opening {
  stream: number;
  /** True if the attempt was accepted before and is only claimed. */
  resume: boolean;
  /** Number of answer bytes that this side already has. */
  from: number;
  /** Length of the request's body; undefined if a stream has no declared length. */
  bodyLength: number | undefined;
}

/** Builds the frame that opens an attempt or claims the rest of its answer. */
export function buildOpenFrame(request: AttemptRequest, { stream, resume, from, bodyLength }: Opening): OpenFrame {
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

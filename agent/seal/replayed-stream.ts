/**
 * Opens the part of a stream that a client already has, after the stream broke off at another node. This node then
 * continues the stream.
 */
import { toBase64url } from '../../shared/lattice/base64url.ts';
import { removePadding } from '../../shared/seal/chunk-padding.ts';
import { AAD_CHUNK, KID_BYTES, RESPONSE_NONCE_BYTES } from '../../shared/seal/hpke-suite.ts';
import { FRAME, FrameSplitter } from '../../shared/seal/response-frames.ts';
import { SealError } from '../../shared/seal/seal-error.ts';
import { type ContinuationPoint, readAnswerContent } from '../../shared/seal/sealed-plaintext.ts';
import { type AnswerKeys, answerKeys } from './answer-sealer.ts';
import { openChunk } from './hpke.ts';

export interface ReplayedStream {
  /** The response's bytes, without the heads of its parts. */
  pieces: Uint8Array[];
  /** The end of `pieces` in the response's parts. This node's part states that it continues there. */
  end: ContinuationPoint;
}

interface Part {
  segment: string;
  keys: AnswerKeys;
  chunks: number;
}

/**
 * Opens the part of a resumable stream that the client already has.
 * @param frames SEGMENT and CHUNK frames of all parts, as the client has them
 * @param secret the secret that all candidates share
 * @throws SealError if the frames are not a complete beginning of a response to this request, and errors of node:crypto
 */
export function openReplayedStream(frames: Uint8Array, secret: Uint8Array): ReplayedStream {
  const splitter = new FrameSplitter();
  const pieces: Uint8Array[] = [];
  let part: Part | undefined;
  let before: ContinuationPoint | undefined;
  for (const { type, payload } of splitter.push(frames)) {
    if (type === FRAME.segment) {
      before = endOf(part);
      part = partOf(payload, secret);
      continue;
    }
    if (type !== FRAME.chunk || part === undefined) throw new SealError('malformed', 'not a part of a stream');
    const content = removePadding(openChunk(part.keys.key, part.keys.nonces.next(), AAD_CHUNK, payload));
    pieces.push(part.chunks++ === 0 ? bodyAfter(content, before) : content);
  }
  const end = endOf(part);
  if (!splitter.atBoundary || end === undefined) throw new SealError('cut', 'ends inside a frame');
  return { pieces, end };
}

function partOf(payload: Uint8Array, secret: Uint8Array): Part {
  const [salt, nonce] = [payload.subarray(0, KID_BYTES), payload.subarray(KID_BYTES)];
  if (nonce.length !== RESPONSE_NONCE_BYTES) throw new SealError('malformed', 'not a part of a stream');
  return { segment: toBase64url(nonce), keys: answerKeys({ kid: salt, salt, secret }, nonce), chunks: 0 };
}

/** @throws SealError if the part has no chunk */
function endOf(part: Part | undefined): ContinuationPoint | undefined {
  if (part === undefined) return undefined;
  if (part.chunks === 0) throw new SealError('malformed', 'a part without a chunk');
  return { segment: part.segment, chunks: part.chunks };
}

/**
 * The body without its head, which must state that the part continues at the previous part's end.
 * @throws SealError malformed
 */
function bodyAfter(content: Uint8Array, before: ContinuationPoint | undefined): Uint8Array {
  const { body, continues } = readAnswerContent(content);
  if (continues?.segment !== before?.segment || continues?.chunks !== before?.chunks)
    throw new SealError('malformed', 'it does not continue at this position');
  return body;
}

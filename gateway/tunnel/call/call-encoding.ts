/**
 * The messages by which a Worker requests one attempt from a session's tunnel object, and by which the object answers.
 * Both ends are the same program, so the receiver does not validate them.
 */
import type { AttemptFailure, AttemptHead, ResultOf } from '../../../shared/attempts/attempt-request.ts';
import { NO_BODY } from '../../../shared/attempts/started-response.ts';

/** The result of a call through a stub, which cannot transfer a stream. */
export type CallResult = ResultOf<'whole' | 'fetch' | 'failure'>;

/**
 * A CallResult as the object sends it to the Worker: a line of JSON without the body, followed by the body if it is
 * text. Only a body that is not text needs an object. A string is cheaper: workerd sends an object with a function that
 * disposes of it, which costs more than the rest of the call.
 */
export type EncodedCallResult = string | { said: string; whole: Uint8Array };

/**
 * The JSON line. A whole response has the kind `head` here and `whole` elsewhere: the encoded name must not change,
 * because a Worker and an object may have different versions during a deployment.
 */
type EncodedLine = { kind: 'head'; status: number; head: AttemptHead } | ResultOf<'fetch' | 'failure'>;

/** A text body above this size is sent as bytes. */
const TEXT_MAX_BYTES = 64 * 1024;

const encoder = new TextEncoder();
/** Throws for bytes that are not UTF-8, so that every decoded text encodes to the same bytes again. */
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export function encodeCallResult(result: CallResult): EncodedCallResult {
  if (result.kind !== 'whole') return `${JSON.stringify(result)}\n`;
  const { status, head, bytes } = result;
  const said = JSON.stringify({ kind: 'head', status, head } satisfies EncodedLine);
  try {
    if (bytes.length <= TEXT_MAX_BYTES) return `${said}\n${decoder.decode(bytes)}`;
  } catch {
    // The body is not text, for example audio, so it is sent as bytes.
  }
  return { said, whole: bytes };
}

export function decodeCallResult(packed: EncodedCallResult): CallResult {
  const isText = typeof packed === 'string';
  const end = isText ? packed.indexOf('\n') : 0;
  const line = JSON.parse(isText ? packed.slice(0, end) : packed.said) as EncodedLine;
  if (line.kind !== 'head') return line;
  return { ...line, kind: 'whole', bytes: isText ? encoder.encode(packed.slice(end + 1)) : packed.whole };
}

/** Encodes a result for a Worker that fetches the attempt. */
export function encodeResponse(result: ResultOf<'whole' | 'stream' | 'offloaded' | 'failure'>): Response {
  if (result.kind === 'failure') {
    const headers = { [FAILURE_HEADER]: result.code, 'content-type': 'text/plain' };
    return new Response(result.message, { status: 520, headers });
  }
  const { status } = result;
  const headers: Record<string, string> = { [HEAD_HEADER]: headerJson(result.head) };
  switch (result.kind) {
    case 'whole':
      headers['content-length'] = String(result.bytes.length);
      return new Response(NO_BODY.has(status) ? null : result.bytes, { status, headers });
    case 'offloaded':
      headers[NUMBER_HEADER] = String(result.rest);
      return new Response(result.first, { status, headers });
    case 'stream':
      if (!NO_BODY.has(status)) return new Response(result.open(), { status, headers });
      // No client reads the body of a response with such a status. It is read here, because otherwise the attempt would
      // never end. Errors are ignored, because the attempt reports a body that is cut.
      result
        .open()
        .pipeTo(new WritableStream())
        .catch(() => {});
      return new Response(null, { status, headers });
  }
}

export async function decodeResponse(
  response: Response,
): Promise<ResultOf<'whole' | 'stream' | 'offloaded' | 'failure'>> {
  const { status, headers, body } = response;
  const encodedHead = headers.get(HEAD_HEADER);
  if (encodedHead === null) {
    const code = (headers.get(FAILURE_HEADER) ?? 'failed') as AttemptFailure;
    return { kind: 'failure', code, message: await response.text() };
  }
  const head = JSON.parse(encodedHead) as AttemptHead;
  const rest = headers.get(NUMBER_HEADER);
  if (rest !== null) {
    const first = new Uint8Array(await response.arrayBuffer());
    return { kind: 'offloaded', status, head, first, rest: Number(rest) };
  }
  if (body === null) return { kind: 'whole', status, head, bytes: new Uint8Array(0) };
  const length = headers.get('content-length');
  return { kind: 'stream', status, head, ...(length !== null && { length: Number(length) }), open: () => body };
}

/** Returns JSON for a header's value, which must be ASCII: an engine's headers may contain any character. */
export function headerJson(value: unknown): string {
  return JSON.stringify(value).replace(
    /[^\x20-\x7e]/g,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Header of the Worker's request with the AttemptRequest. */
export const OPEN_HEADER = 'x-otela-open';
/** Header of an engine's response with its AttemptHead. */
const HEAD_HEADER = 'x-otela-head';
/** Header of a failure with its AttemptFailure. */
const FAILURE_HEADER = 'x-otela-failure';

/**
 * Header of an offloaded response: the number by which the Worker asks for the rest. The body has the first data of the
 * engine's response.
 */
const NUMBER_HEADER = 'x-otela-number';

/** Value of `answerOffset` in a claim: the Worker needs only the reason why the response was cut, and no data. */
export const FAILURE_ONLY_OFFSET = -1;

/**
 * How the Worker requests one attempt from a session's object, and how the object answers. Both ends are the same
 * program, so the receiver does not validate again.
 */
import type { AttemptHead, CompleteResult } from '../../../shared/upstream/attempt.ts';

/**
 * The result of a call for an attempt: the response, if it arrived soon and whole. Otherwise `fetch`: the Worker must
 * fetch it.
 */
export type CallResult = CompleteResult | { kind: 'fetch' };

/** The result of a call in this process. The response may also be offloaded; then `first` is its first data. */
export type LocalCallResult =
  | CallResult
  | { kind: 'offloaded'; status: number; head: AttemptHead; number: number; first: Uint8Array };

/**
 * A CallResult as the object sends it to the Worker: a line of JSON without the body, followed by the body if it is
 * text. workerd would send an object together with a function that disposes of it, which costs more than the rest of
 * the call.
 */
export type EncodedCallResult = string | { said: string; whole: Uint8Array };

/** A text body above this size is sent as bytes. */
const TEXT_MAX_BYTES = 64 * 1024;

const encoder = new TextEncoder();
/** Fatal, so that text which it decodes encodes to the same bytes again. */
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export function encodeCallResult(result: CallResult): EncodedCallResult {
  if (result.kind !== 'head') return `${JSON.stringify(result)}\n`;
  const { whole, ...rest } = result;
  const said = JSON.stringify(rest);
  try {
    if (whole.length <= TEXT_MAX_BYTES) return `${said}\n${decoder.decode(whole)}`;
  } catch {
    // Not text, for example audio.
  }
  return { said, whole };
}

export function decodeCallResult(packed: EncodedCallResult): CallResult {
  if (typeof packed !== 'string') return { ...JSON.parse(packed.said), whole: packed.whole } as CallResult;
  const end = packed.indexOf('\n');
  const result = JSON.parse(packed.slice(0, end)) as CallResult;
  return result.kind === 'head' ? { ...result, whole: encoder.encode(packed.slice(end + 1)) } : result;
}

/** JSON for a header's value, which must be ASCII: an engine's headers may contain any character. */
export function headerJson(value: unknown): string {
  return JSON.stringify(value).replace(
    /[^\x20-\x7e]/g,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** On the Worker's request: the AttemptRequest. */
export const OPEN_HEADER = 'x-otela-open';
/** On a response from the engine: its AttemptHead. */
export const HEAD_HEADER = 'x-otela-head';
/** On a failure: its AttemptFailure. */
export const FAILURE_HEADER = 'x-otela-failure';

/** On an offloaded response: the number that names the rest. The body is the first data. */
export const NUMBER_HEADER = 'x-otela-number';

/** As `answerOffset` of a claim: the Worker wants only the reason why the response broke off, and no data. */
export const FAILURE_ONLY_OFFSET = -1;

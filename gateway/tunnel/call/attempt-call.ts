/** How the Worker asks a session's object for one attempt, and how the object answers. Both are this program: no parsing twice. */
import type { AttemptHead, CompleteResult } from '../../../shared/upstream/attempt.ts';

/** The result of a call for an attempt: the answer, if it came soon and whole. Else the Worker is to fetch it. */
export type CallResult = CompleteResult | { kind: 'fetch' };

/** The result of a call in this process. The answer may also be offloaded; then its first data is here. */
export type LocalCallResult =
  | CallResult
  | { kind: 'offloaded'; status: number; head: AttemptHead; number: number; first: Uint8Array };

/**
 * A CallResult on its way from the object to the Worker: a line of JSON without the bytes, and behind it the bytes, if they are text.
 * workerd would send an object with a function that disposes of it, which costs more than all the rest of the answer.
 */
export type EncodedCallResult = string | { said: string; whole: Uint8Array };

/** Longer answers travel as bytes. */
const TEXT_MAX_BYTES = 64 * 1024;

const encoder = new TextEncoder();
/** Text that it decodes is encoded to the same bytes again. */
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export function encodeCallResult(result: CallResult): EncodedCallResult {
  if (result.kind !== 'head') return `${JSON.stringify(result)}\n`;
  const { whole, ...rest } = result;
  const said = JSON.stringify(rest);
  try {
    if (whole.length <= TEXT_MAX_BYTES) return `${said}\n${decoder.decode(whole)}`;
  } catch {
    // audio, say
  }
  return { said, whole };
}

export function decodeCallResult(packed: EncodedCallResult): CallResult {
  if (typeof packed !== 'string') return { ...JSON.parse(packed.said), whole: packed.whole } as CallResult;
  const end = packed.indexOf('\n');
  const result = JSON.parse(packed.slice(0, end)) as CallResult;
  return result.kind === 'head' ? { ...result, whole: encoder.encode(packed.slice(end + 1)) } : result;
}

/** JSON for a header's value, which is ASCII: an engine's own headers may have any letter. */
export function headerJson(value: unknown): string {
  return JSON.stringify(value).replace(
    /[^\x20-\x7e]/g,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** On the Worker's request: the AttemptRequest. */
export const OPEN_HEADER = 'x-otela-open';
/** On an answer from the engine: its AttemptHead. */
export const HEAD_HEADER = 'x-otela-head';
/** On a failure: its AttemptFailure. */
export const FAILURE_HEADER = 'x-otela-failure';

/** On an offloaded answer: the number that names its rest. The body is the first data. */
export const NUMBER_HEADER = 'x-otela-number';

/** As `answerOffset` of a claim: the Worker wants nothing of the answer, only why it broke off. */
export const FAILURE_ONLY_OFFSET = -1;

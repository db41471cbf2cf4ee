import { causeText } from '../../node/gateway-client.ts';
import { readTextAtMost } from '../../shared/collections/read-at-most.ts';

/** Largest response that is read: a list of ten thousand models. */
const ANSWER_MAX_BYTES = 4 * 1024 * 1024;

/** No gateway answers, or the gateway cannot serve. The program prints one sentence and exits with code 69. */
export class UnreachableError extends Error {}

/**
 * Like `fetch`, but with a useful error message. For any failure before a response, the message of `fetch` is only
 * "fetch failed".
 * @throws UnreachableError
 */
export async function fetchOrExplain(url: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, init);
  } catch (error) {
    throw new UnreachableError(`no gateway answers at ${new URL(url).origin}: ${causeText(error)}`, { cause: error });
  }
}

/**
 * The text of a response; empty if it is larger than any of a gateway, and then the rest is not read. Rejects if the
 * response breaks off.
 */
export async function responseText(response: Response): Promise<string> {
  return (await readTextAtMost(response.body, ANSWER_MAX_BYTES)) ?? '';
}

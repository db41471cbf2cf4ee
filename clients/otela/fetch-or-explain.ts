import { causeText } from '../../node/gateway-client.ts';

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

import { causeText } from '../../node/gateway-client.ts';

/** No gateway answers, or it cannot serve. The program prints one sentence and exits with code 69. */
export class UnreachableError extends Error {}

/**
 * `fetch` with a useful message: its own for any failure before a response is "fetch failed". @throws UnreachableError
 */
export async function fetchOrExplain(url: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, init);
  } catch (error) {
    throw new UnreachableError(`no gateway answers at ${new URL(url).origin}: ${causeText(error)}`, { cause: error });
  }
}

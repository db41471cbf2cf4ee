/**
 * Requests that this page seals to the nodes that answer them. Loaded when a chat is first sealed. The page's own code
 * comes from the gateway, which could change it. So no provider is pinned here, and the chat promises no more about
 * sealing than docs/sealed.md does.
 */
import { SealClientError, sealedFetch } from '../../clients/seal/index.ts';
import { t } from '../texts/index.ts';
import { basePath } from './base-path.ts';
import { Problem, parseProblem } from './client.ts';

const sealed = sealedFetch({ fetch: (input, init) => fetch(input, { credentials: 'same-origin', ...init }) });

/**
 * Sends a sealed request.
 * @throws Problem, also if the request cannot be sealed, and then nothing is sent; AbortError
 */
export async function sendSealed(path: string, init: RequestInit): Promise<Response> {
  // Browsers offer cryptography only on TLS and on localhost.
  if (!globalThis.isSecureContext) throw new Problem(0, 'not_sealable', t.chat.sealed.needsTls);
  let response: Response;
  try {
    response = await sealed(basePath + path, init);
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === 'AbortError') throw cause;
    if (cause instanceof SealClientError) throw new Problem(0, cause.code, cause.message, { cause });
    throw new Problem(0, 'offline', t.errors.offline, { cause });
  }
  if (response.ok) return response;
  throw parseProblem(response.status, await response.json().catch(() => undefined));
}

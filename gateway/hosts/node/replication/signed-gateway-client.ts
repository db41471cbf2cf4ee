/**
 * A client for requests from one gateway of an institution to another. Requests and answers are signed; an answer's
 * signature covers the request's nonce.
 */

import { Agent, type Dispatcher, request } from 'undici';
import type * as z from 'zod';
import { readAtMost } from '../../../../shared/collections/read-at-most.ts';
import { openAiErrorMessage } from '../../../../shared/openai/error-message.ts';
import { errorText } from '../../../../shared/text/error-text.ts';
import { parseJson } from '../../../../shared/text/parse-json.ts';
import { AdaptiveTimeout } from '../../../../shared/timing/adaptive-timeout.ts';
import { nowS } from '../../../platform/unix-time.ts';
import { waitClock } from '../../../platform/wait-clock.ts';
import { type GatewayIdentity, SIGNED_HEADER, signRequest, verifyRequest } from './signed-request.ts';

/** Maximum bytes of an answer. */
export const LINK_ANSWER_MAX_BYTES = 8 * 1024 * 1024;

class LinkError extends Error {}

export class SignedGatewayClient {
  readonly #identity: GatewayIdentity;
  readonly #dispatcher: Dispatcher;

  constructor(identity: GatewayIdentity) {
    this.#identity = identity;
    this.#dispatcher = new Agent({ connections: 8, pipelining: 1 });
  }

  /** POSTs JSON and returns the answer. @throws LinkError if there is no valid answer within `withinMs` */
  async ask<T>(
    base: URL,
    path: string,
    message: unknown,
    schema: z.ZodType<T>,
    wait: number | AdaptiveTimeout,
  ): Promise<{ answer: T; by: string }> {
    const bytes = Buffer.from(JSON.stringify(message));
    const { header, nonce } = signRequest(this.#identity, { about: `POST ${path}`, body: bytes }, nowS());
    let status: number;
    let text: Buffer;
    let proof: string | string[] | undefined;
    try {
      const bounds = typeof wait === 'number' ? new AdaptiveTimeout({ leastMs: wait, mostMs: wait }) : wait;
      ({ status, proof, text } = await waitClock.call(bounds, async (signal) => {
        const response = await request(new URL(path, base), {
          method: 'POST',
          dispatcher: this.#dispatcher,
          headers: { 'content-type': 'application/json', [SIGNED_HEADER]: header },
          body: bytes,
          signal,
        });
        const { statusCode, headers, body } = response;
        const read = await readAtMost(body, LINK_ANSWER_MAX_BYTES);
        if (read === undefined) throw new Error(`more than ${LINK_ANSWER_MAX_BYTES} bytes`);
        return { status: statusCode, proof: headers[SIGNED_HEADER], text: Buffer.from(read.buffer) };
      }));
    } catch (cause) {
      throw new LinkError(`${base.host}: ${errorText(cause)}`, { cause });
    }
    if (status !== 200)
      throw new LinkError(
        `${base.host}: ${status} ${openAiErrorMessage(text.toString()) ?? text.toString('utf8', 0, 200)}`,
      );
    try {
      const { certificate } = verifyRequest(this.#identity, String(proof), { about: nonce, body: text }, nowS());
      return { answer: schema.parse(parseJson(text.toString())), by: certificate.keyName };
    } catch (cause) {
      throw new LinkError(`${base.host}: its response is not valid: ${errorText(cause)}`, {
        cause,
      });
    }
  }

  close(): Promise<void> {
    return this.#dispatcher.destroy();
  }
}

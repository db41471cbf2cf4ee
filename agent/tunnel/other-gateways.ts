/** Which other gateways there are, asked of one that took the session in. */
import * as z from 'zod';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import { PROTOCOL_VERSION } from '../../shared/wire/limits.ts';
import { otherGateways } from './admission.ts';
import { postToGateway } from './gateway-request.ts';

const ANSWER_WITHIN_MS = 10_000;
const answerSchema = z.object({ data: z.array(z.object({ url: z.url({ protocol: /^https?$/ }) })).max(64) });

export interface OtherGatewaysOptions {
  gateway: URL;
  ticket: Ticket;
  proxy: ((gateway: URL) => URL | undefined) | undefined;
  env: NodeJS.ProcessEnv;
}

/** Undefined where it does not say: that is no word about any gateway. Never rejects. */
export async function askForGateways(options: OtherGatewaysOptions): Promise<URL[] | undefined> {
  const { gateway, ticket, proxy, env } = options;
  const headers = {
    'content-type': 'application/json',
    'x-otela-protocol': String(PROTOCOL_VERSION),
    'x-otela-ticket': toBase64url(ticket.bytes),
  };
  try {
    const answer = await postToGateway({
      gateway,
      path: '/agent/gateways',
      headers,
      body: '',
      env,
      proxy: proxy?.(gateway),
      signal: AbortSignal.timeout(ANSWER_WITHIN_MS),
    });
    if (answer.status !== 200) return undefined;
    return otherGateways(answerSchema.parse(JSON.parse(answer.text)).data, gateway);
  } catch {
    return undefined;
  }
}

/** Which other gateways there are, asked of one that took the session in. */
import * as z from 'zod';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import { PROTOCOL_VERSION } from '../../shared/wire/limits.ts';
import { gatewayAnswers, patience } from '../patience.ts';
import { type Admission, membershipWordSchema, namedGatewaySchema, otherGateways } from './admission.ts';
import { postToGateway } from './gateway-request.ts';

const answerSchema = z.object({
  /** The gateway is of another institution than the ticket, so it names no gateways. */
  peer: z.boolean().default(false),
  data: z.array(namedGatewaySchema).max(64),
  membership: membershipWordSchema,
});

/** What a gateway says beside its tunnel. */
export type GatewayWord = Pick<Admission, 'gateways' | 'membership'>;

export interface OtherGatewaysOptions {
  gateway: URL;
  ticket: Ticket;
  proxy: ((gateway: URL) => URL | undefined) | undefined;
  env: NodeJS.ProcessEnv;
}

/** Undefined if the gateway does not answer, or is of another institution: then no gateway is added or dropped. Never rejects. */
export async function askForGateways(options: OtherGatewaysOptions): Promise<GatewayWord | undefined> {
  const { gateway, ticket, proxy, env } = options;
  const headers = {
    'content-type': 'application/json',
    'x-otela-protocol': String(PROTOCOL_VERSION),
    'x-otela-ticket': toBase64url(ticket.bytes),
  };
  try {
    const answer = await patience.call(gatewayAnswers, (signal) =>
      postToGateway({
        gateway,
        path: '/agent/gateways',
        headers,
        body: '',
        env,
        proxy: proxy?.(gateway),
        signal,
      }),
    );
    if (answer.status !== 200) return undefined;
    const { peer, data, membership } = answerSchema.parse(JSON.parse(answer.text));
    return peer ? undefined : { gateways: otherGateways(data, gateway), membership };
  } catch {
    return undefined;
  }
}

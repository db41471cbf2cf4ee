/** Asks a gateway that admitted the session for the other gateways. */
import * as z from 'zod';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import { PROTOCOL_VERSION } from '../../shared/wire/protocol-constants.ts';
import { gatewayTimeout, waitClock } from '../wait-clock.ts';
import {
  type GatewayAdmission,
  membershipHintSchema,
  otherGatewaySchema,
  selectOtherGateways,
} from './gateway-admission.ts';
import { postToGateway } from './gateway-request.ts';

const answerSchema = z.object({
  /** True if this gateway belongs to another institution than the ticket's issuer. `data` is then empty. */
  peer: z.boolean().default(false),
  data: z.array(otherGatewaySchema).max(64),
  membership: membershipHintSchema,
});

/** What a gateway reports outside its tunnel: other gateways, and the mesh's intervals and timeouts. */
export type GatewayHints = Pick<GatewayAdmission, 'gateways' | 'membership'>;

interface OtherGatewaysOptions {
  gateway: URL;
  ticket: Ticket;
  proxy: ((gateway: URL) => URL | undefined) | undefined;
  env: NodeJS.ProcessEnv;
}

/**
 * Asks the gateway. Undefined if it does not answer, or if it belongs to another institution; the caller then keeps its
 * list of gateways. Never rejects.
 */
export async function pollGateways(options: OtherGatewaysOptions): Promise<GatewayHints | undefined> {
  const { gateway, ticket, proxy, env } = options;
  const headers = {
    'content-type': 'application/json',
    'x-otela-protocol': String(PROTOCOL_VERSION),
    'x-otela-ticket': toBase64url(ticket.bytes),
  };
  try {
    const answer = await waitClock.call(gatewayTimeout, (signal) =>
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
    return peer ? undefined : { gateways: selectOtherGateways(data, gateway), membership };
  } catch {
    return undefined;
  }
}

/** Asks a gateway that admitted the session for the other gateways. */
import * as z from 'zod';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import type { Ticket } from '../../shared/lattice/ticket.ts';
import {
  type IngressShares,
  PLAN_HOLDS_MAX_MS,
  PLAN_MODELS_MAX,
  PLAN_REGIONS_MAX,
} from '../../shared/routing/region-shares.ts';
import { type PeerAllowances, peerAllowancesSchema } from '../../shared/usage/peer-allowance.ts';
import { PROTOCOL_VERSION } from '../../shared/wire/protocol-constants.ts';
import { gatewayTimeout, waitClock } from '../wait-clock.ts';
import {
  type GatewayAdmission,
  membershipHintSchema,
  otherGatewaySchema,
  selectOtherGateways,
} from './gateway-admission.ts';
import { postToGateway } from './gateway-request.ts';

const bounded = <T extends z.ZodType>(value: T, most: number) =>
  z.record(z.string().max(256), value).refine((record) => Object.keys(record).length <= most);
const sharesSchema = bounded(z.number().min(0).max(1), PLAN_REGIONS_MAX);

const answerSchema = z.object({
  /** True if this gateway belongs to another institution than the ticket's issuer. `data` is then empty. */
  peer: z.boolean().default(false),
  data: z.array(otherGatewaySchema).max(64),
  membership: membershipHintSchema,
  /** Shares of the valid plan of regions. An invalid value is ignored: requests are then routed by policy. */
  shares: z
    .object({
      holds_ms: z.number().min(0).max(PLAN_HOLDS_MAX_MS),
      models: bounded(
        z.object({ shares: sharesSchema, spill: bounded(sharesSchema, PLAN_REGIONS_MAX).optional() }),
        PLAN_MODELS_MAX,
      ),
    })
    .optional()
    .catch(undefined),
  /** What peer institutions may use at this node. If the value is invalid, they have no limits. */
  peers: peerAllowancesSchema.catch({}).default({}),
});

/**
 * What a gateway reports outside its tunnel: other gateways, the mesh's intervals and timeouts, and shares by region
 * for this agent's ingress.
 */
export type GatewayHints = Pick<GatewayAdmission, 'gateways' | 'membership'> & {
  shares?: IngressShares | undefined;
  peers?: PeerAllowances | undefined;
};

interface OtherGatewaysOptions {
  gateway: URL;
  ticket: Ticket;
  /** Region of this agent's ingress; empty: an ingress without a region; undefined: there is no ingress. */
  region?: string | undefined;
  proxy: ((gateway: URL) => URL | undefined) | undefined;
  env: NodeJS.ProcessEnv;
}

/**
 * Asks the gateway. Undefined if it does not answer, or if it belongs to another institution; the caller then keeps its
 * list of gateways. Never rejects.
 */
export async function pollGateways(options: OtherGatewaysOptions): Promise<GatewayHints | undefined> {
  const { gateway, ticket, region, proxy, env } = options;
  const headers = {
    'content-type': 'application/json',
    'x-otela-protocol': String(PROTOCOL_VERSION),
    'x-otela-ticket': toBase64url(ticket.bytes),
    ...(region === undefined ? {} : { 'x-otela-region': region }),
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
    const { peer, data, membership, shares, peers } = answerSchema.parse(JSON.parse(answer.text));
    return peer ? undefined : { gateways: selectOtherGateways(data, gateway), membership, shares, peers };
  } catch {
    return undefined;
  }
}

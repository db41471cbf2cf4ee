import { type Context, Hono } from 'hono';
import { ingressShares } from '../../shared/routing/region-shares.ts';
import { LOCAL_ISSUER } from '../../shared/routing/trusted-providers.ts';
import type { PeerAllowances } from '../../shared/usage/peer-allowance.ts';
import type { Env } from '../env.ts';
import type { PeerLimits } from '../settings/peer-limits.ts';
import type { ListedIssuer } from './listed-issuers.ts';
import { PROTOCOL_HEADER, verifyAgentTicket, versionMismatch } from './verify-agent-ticket.ts';
import { issuersView } from './views/issuers-view.ts';

/** Maximum gateways in the list. An agent connects to some tens of gateways at most. */
const GATEWAYS_MAX = 32;

/** Region of an agent with an ingress, which may be empty; absent: the agent has no ingress, and needs no shares. */
const REGION_HEADER = 'x-otela-region';

const NOT_STORED = { 'cache-control': 'no-store' };

interface NamedGateway {
  url: string;
  /**
   * True for a gateway of this institution. Agents send their join tokens, last logs and batch lines only to these
   * gateways.
   */
  own: boolean;
  /** Name of the peer institution. The agent records under it what the institution uses. */
  peer?: string;
}

/**
 * Returns other gateways to which this agent may connect: first those of this institution, then those of peer
 * institutions, which decide whether they accept it.
 */
export function otherGateways({ PROCESSES }: Env, issuers: Iterable<ListedIssuer>, session: string): NamedGateway[] {
  const own = new Set(PROCESSES?.urlsFor(session));
  const peers = new Map([...issuers].flatMap(({ url, name }) => (url === undefined ? [] : [[url, name]])));
  return [...new Set([...own, ...peers.keys()])].slice(0, GATEWAYS_MAX).map((url) => {
    const peer = own.has(url) ? undefined : peers.get(url);
    return { url, own: own.has(url), ...(peer !== undefined && { peer }) };
  });
}

/**
 * `POST /agent/gateways`: returns `otherGateways` to an existing session, so that gateways can be added and removed
 * without restarting agents. An agent with an ingress also gets the shares of the valid plan of regions. Each
 * agent gets what peer institutions may use.
 */
export function agentGatewayRoutes(allowancesOf: AllowancesOf): Hono<{ Bindings: Env }> {
  return new Hono<{ Bindings: Env }>().post('/gateways', (c) => answerAgent(c, allowancesOf));
}

/** Returns what peer institutions may use at this institution's nodes. Never rejects. */
export type AllowancesOf = (env: Env, limits: PeerLimits, now: number) => Promise<PeerAllowances>;

async function answerAgent(c: Context<{ Bindings: Env }>, allowancesOf: AllowancesOf): Promise<Response> {
  const request = c.req.raw;
  const mismatch = versionMismatch(request.headers.get(PROTOCOL_HEADER));
  if (mismatch !== undefined) return mismatch;
  const { ticket, issuer, view } = await verifyAgentTicket(
    request,
    (id) => issuersView(c.env, c.executionCtx, id),
    Date.now(),
  );
  // A session of a peer institution gets an empty list, because its own institution decides to which gateways it
  // connects and how often it probes.
  if (issuer.name !== LOCAL_ISSUER) return c.json({ object: 'list', peer: true, data: [] }, 200, NOT_STORED);
  const { membership, regionPlan, peerLimits } = view.settings;
  const region = request.headers.get(REGION_HEADER);
  const shares = region === null ? undefined : ingressShares(regionPlan, region, Date.now());
  const answer = {
    object: 'list',
    data: otherGateways(c.env, view.issuers.values(), ticket.session),
    membership,
    shares,
    peers: await allowancesOf(c.env, peerLimits, Date.now()),
  };
  return c.json(answer, 200, NOT_STORED);
}

import { ACCEPTS_LABEL, DEPLOYMENT_LABEL } from '../../shared/deployment/deployment-labels.ts';
import type { DeploymentRequest } from '../../shared/deployment/deployment-order.ts';
import { IssuerError } from '../issuer/issuer.ts';
import type { IssuerAuthority } from './issuer-authority.ts';
import type { SessionRegistry } from './session-registry.ts';

/**
 * `unreachable`: the session's tunnel to this gateway is not open. `deaf`: its agent does not accept this order; an
 * older agent would close its tunnel at the frame. `foreign`: another institution's issuer admitted the session.
 * `powerless`: this gateway's key or certificate is not valid, as `reason` says.
 */
export type OrderReply =
  | { kind: 'signed'; order: Uint8Array; provider: string }
  | { kind: 'unknown' | 'over' | 'foreign' | 'unreachable' | 'deaf'; provider?: string }
  | { kind: 'powerless'; reason: string };

const ACCEPTED_BY_ALL: ReadonlySet<DeploymentRequest['action']> = new Set([
  'drain',
  'restart',
  'inspect',
  'load',
  'unload',
]);

/**
 * Signs an order if the session may get it. Only sessions of this institution obey our orders, so other sessions are
 * sent nothing.
 */
export function orderFor(
  session: string,
  request: DeploymentRequest | undefined,
  { authority, members, nowS }: { authority: IssuerAuthority; members: SessionRegistry; nowS: number },
): OrderReply {
  const entry = members.replica.get(session);
  const shown = members.sessions.get(session);
  if (entry === undefined || shown === undefined) return { kind: 'unknown' };
  const { provider, labels } = shown;
  if (entry.state === 'LEFT') return { kind: 'over', provider };
  if (entry.issuer !== authority.issuer.issuer) return { kind: 'foreign', provider };
  if (!members.sessions.isOpen(session)) return { kind: 'unreachable', provider };
  const deploys = labels[ACCEPTS_LABEL] !== undefined || labels[DEPLOYMENT_LABEL] !== undefined;
  // Every agent that is new enough obeys drain, restart and inspect, and answers load and unload. The tunnel object
  // checks whether the agent is new enough.
  if (!deploys && request !== undefined && !ACCEPTED_BY_ALL.has(request.action)) return { kind: 'deaf', provider };
  if (!deploys && request === undefined) return { kind: 'deaf', provider };
  if (request === undefined) return { kind: 'signed', order: new Uint8Array(), provider };
  const { notBefore, notAfter } = authority.issuer.certificate;
  if (nowS < notBefore || nowS >= notAfter)
    return {
      kind: 'powerless',
      reason: "This gateway's certificate is not valid now, so agents would refuse the order.",
    };
  try {
    return { kind: 'signed', order: authority.issuer.order(session, request, nowS), provider };
  } catch (error) {
    if (error instanceof IssuerError) return { kind: 'powerless', reason: error.message };
    throw error;
  }
}

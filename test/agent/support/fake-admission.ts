/** A mock of a gateway that admits every agent: real keys, certificates and tickets, and no network. */
import { nodeCrypto } from '../../../agent/host/node-crypto.ts';
import type { AdmissionOptions, GatewayAdmission } from '../../../agent/tunnel/gateway-admission.ts';
import { type DeploymentRequest, signOrder } from '../../../shared/deployment/deployment-order.ts';
import { MEMBERSHIP_DEFAULTS } from '../../../shared/gossip/index.ts';
import type { Update } from '../../../shared/lattice/registry-update.ts';
import { openTicket, signTicket, type Ticket } from '../../../shared/lattice/ticket.ts';
import { institution, NOW_S } from '../../shared/lattice/house.ts';

const lab = institution();
const gateway = lab.gateway();

/** The institution's id. */
export const LAB = lab.issuer;

export function labTicket(sessionKey: Uint8Array, lifetimeS = 7 * 86_400, cluster = 'default'): Ticket {
  const fields = { certificate: gateway.certificate, sessionKey, birth: NOW_S, provider: 'lab', cluster };
  return openTicket(signTicket({ ...fields, expires: NOW_S + lifetimeS }, gateway.signer, nodeCrypto), nodeCrypto);
}

/** `lifetimeS` is the ticket's. */
export async function fakeAdmission({ key, cluster }: AdmissionOptions, lifetimeS?: number): Promise<GatewayAdmission> {
  const ticket = labTicket(key.publicKey, lifetimeS, cluster);
  return {
    ticket,
    issuers: [{ name: 'local', root: lab.root.publicKey }],
    gateways: [],
    membership: MEMBERSHIP_DEFAULTS,
  };
}

/** The institution's signed statement that a session has ended. */
export function eviction(session: string): Update {
  return gateway.evict(session);
}

/** Signs orders at any time of this machine's clock. */
const commander = lab.gateway({ notBefore: 1, notAfter: 4_000_000_000 });
let orders = 0;

/** The institution's order to one of its sessions. */
export function order(session: string, wish: DeploymentRequest): Uint8Array {
  const nonce = new Uint8Array(16);
  new DataView(nonce.buffer).setUint32(0, ++orders);
  const notAfter = Math.floor(Date.now() / 1000) + 120;
  return signOrder({ certificate: commander.certificate, session, nonce, notAfter, wish }, commander.signer);
}

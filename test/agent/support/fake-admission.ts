/** Stands in for a gateway that lets everybody in: real keys, certificates and tickets, and no network. */
import { nodeCrypto } from '../../../agent/host/crypto.ts';
import type { Admission, AdmissionOptions } from '../../../agent/tunnel/admission.ts';
import { openTicket, signTicket } from '../../../shared/lattice/ticket.ts';
import { institution, NOW_S } from '../../shared/lattice/house.ts';

const lab = institution();
const gateway = lab.gateway();

/** `lifetimeS` of the ticket. */
export async function fakeAdmission(
  { key, cluster = 'default' }: AdmissionOptions,
  lifetimeS = 7 * 86_400,
): Promise<Admission> {
  const fields = {
    certificate: gateway.certificate,
    sessionKey: key.publicKey,
    birth: NOW_S,
    provider: 'lab',
    cluster,
  };
  const bytes = signTicket({ ...fields, expires: NOW_S + lifetimeS }, gateway.signer, nodeCrypto);
  return {
    ticket: openTicket(bytes, nodeCrypto),
    issuers: [{ name: 'local', root: lab.root.publicKey }],
    gateways: [],
  };
}

/** An issuer for tests and benchmarks: a root, one gateway key, and tickets without a gateway. */
import { nodeCrypto, nodeSigner } from '../../../agent/host/node-crypto.ts';
import type { Signer } from '../../../shared/lattice/crypto-interface.ts';
import { signEviction } from '../../../shared/lattice/eviction.ts';
import { issuerId, keyName, signCertificate } from '../../../shared/lattice/gateway-certificate.ts';
import type { Update } from '../../../shared/lattice/registry-update.ts';
import { openTicket, signTicket, type Ticket } from '../../../shared/lattice/ticket.ts';

/** A time in 2026. Any time would do, because no clock is used. */
const FROM_S = 1_767_225_600;
const YEAR_S = 365 * 86_400;

export class TestIssuer {
  readonly root: Signer;
  readonly gateway: Signer;
  readonly certificate: Uint8Array;
  readonly issuer: string;
  /** The gateway's id as a gossip peer. */
  readonly gatewayId: string;

  constructor(rootSeed?: Uint8Array, gatewaySeed?: Uint8Array) {
    this.root = nodeSigner(rootSeed);
    this.gateway = nodeSigner(gatewaySeed);
    const fields = { key: this.gateway.publicKey, notBefore: FROM_S, notAfter: FROM_S + YEAR_S };
    this.certificate = signCertificate(fields, this.root);
    this.issuer = issuerId(this.root.publicKey, nodeCrypto);
    this.gatewayId = `gw:${keyName(this.gateway.publicKey)}`;
  }

  ticket(sessionKey: Uint8Array, names: { provider?: string; cluster?: string; birth?: number } = {}): Ticket {
    const birth = names.birth ?? FROM_S + 1;
    const { provider = 'lab', cluster = 'alps' } = names;
    const fields = { certificate: this.certificate, sessionKey, birth, expires: birth + 86_400, provider, cluster };
    return openTicket(signTicket(fields, this.gateway, nodeCrypto), nodeCrypto);
  }

  eviction(session: string, reason = 'silent'): Update {
    const fields = { session, reason, certificate: this.certificate };
    return { kind: 'entry', eviction: signEviction(fields, this.gateway, nodeCrypto) };
  }
}

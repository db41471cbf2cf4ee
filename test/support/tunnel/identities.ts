/** Sessions with tickets that a test signs itself: the gateway under test gets the issuer's keys. */
import * as z from 'zod';
import { nodeCrypto, nodeSigner } from '../../../agent/host/node-crypto.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import type { Signer } from '../../../shared/lattice/crypto-interface.ts';
import { signCertificate } from '../../../shared/lattice/gateway-certificate.ts';
import { encodePayload, type NodePayload } from '../../../shared/lattice/node-payload.ts';
import type { NodeRecord } from '../../../shared/lattice/node-record.ts';
import { encodeUpdate } from '../../../shared/lattice/registry-update.ts';
import { signRecord } from '../../../shared/lattice/signed-record.ts';
import { decodeTicket, openTicket, signTicket, type Ticket } from '../../../shared/lattice/ticket.ts';
import { PROTOCOL_VERSION } from '../../../shared/wire/protocol-constants.ts';

export interface TestIdentity {
  session: string;
  publicKey: Uint8Array;
  ticket: Ticket;
  signer: Signer;
  sign(message: Uint8Array): Uint8Array;
}

export class TestIssuer {
  readonly #gateway: Signer;
  readonly certificate: Uint8Array;
  readonly root: string;
  /** Environment variables of the gateway under test. */
  readonly vars: { OTELA_GATEWAY_KEY: string; OTELA_GATEWAY_CERT: string };

  constructor() {
    const seed = crypto.getRandomValues(new Uint8Array(32));
    const root = nodeSigner(crypto.getRandomValues(new Uint8Array(32)));
    this.#gateway = nodeSigner(seed);
    const dates = { notBefore: nowS() - 3600, notAfter: nowS() + 86_400 };
    this.certificate = signCertificate({ key: this.#gateway.publicKey, ...dates }, root);
    this.root = toBase64url(root.publicKey);
    this.vars = { OTELA_GATEWAY_KEY: toBase64url(seed), OTELA_GATEWAY_CERT: toBase64url(this.certificate) };
  }

  /** Makes a new session. */
  identity(more: { provider?: string; cluster?: string; birth?: number; expires?: number } = {}): TestIdentity {
    const signer = nodeSigner(crypto.getRandomValues(new Uint8Array(32)));
    const { provider = 'lab', cluster = 'testbed', birth = nowS(), expires = birth + 3600 } = more;
    const fields = { certificate: this.certificate, sessionKey: signer.publicKey, birth, expires, provider, cluster };
    const ticket = openTicket(signTicket(fields, this.#gateway, nodeCrypto), nodeCrypto);
    return identityFor(ticket, signer);
  }
}

/** Makes a session that a gateway admits through its public endpoint, with a join token. */
export async function admitted(url: string, token: string): Promise<TestIdentity> {
  const signer = nodeSigner(crypto.getRandomValues(new Uint8Array(32)));
  const response = await fetch(`${url}/agent/admit`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ protocol: PROTOCOL_VERSION, public_key: toBase64url(signer.publicKey) }),
  });
  if (!response.ok) throw new Error(`admit: ${response.status} ${await response.text()}`);
  const { ticket } = z.object({ ticket: z.string() }).parse(await response.json());
  return identityFor(decodeTicket(new Uint8Array(Buffer.from(ticket, 'base64url')), nodeCrypto), signer);
}

function identityFor(ticket: Ticket, signer: Signer): TestIdentity {
  const { session } = ticket;
  return { session, publicKey: signer.publicKey, ticket, signer, sign: (message) => signer.sign(message) };
}

/** A session's registry record, in the form of a RECORD frame. */
export function wordsOf({ session, signer, ticket }: TestIdentity, record: NodeRecord): Uint8Array {
  const { state, version, hardware, ...said } = record;
  const gpus = hardware.gpus.map((gpu) => ({ ...gpu, count: 1 }));
  const payload: NodePayload = { ...said, hardware: { ...hardware, gpus }, addresses: [] };
  const bytes = encodePayload(payload);
  const signed = signRecord({ session, state, version, payload: bytes }, signer, nodeCrypto);
  return encodeUpdate({ kind: 'entry', ticket: ticket.bytes, record: signed, payload: bytes });
}

function nowS(): number {
  return Math.floor(Date.now() / 1000);
}

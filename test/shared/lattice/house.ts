/** An institution, its gateways and their nodes, with real signatures. */
import { nodeCrypto, nodeSigner } from '../../../agent/host/node-crypto.ts';
import type { Crypto, Signer } from '../../../shared/lattice/crypto-interface.ts';
import { signEviction } from '../../../shared/lattice/eviction.ts';
import { issuerId, signCertificate } from '../../../shared/lattice/gateway-certificate.ts';
import { signGcWatermark, signRevocation } from '../../../shared/lattice/gateway-key-statements.ts';
import { encodePayload, type NodePayload } from '../../../shared/lattice/node-payload.ts';
import type { SessionState } from '../../../shared/lattice/node-record.ts';
import type { EntryUpdate, Update } from '../../../shared/lattice/registry-update.ts';
import { signRecord } from '../../../shared/lattice/signed-record.ts';
import { openTicket, signTicket, type Ticket } from '../../../shared/lattice/ticket.ts';

/** 2026-11-20. */
export const NOW_S = 1_795_000_000;
export const DAY_S = 86_400;

export const PAYLOAD: NodePayload = {
  tier: 'volatile',
  labels: {},
  models: [{ id: 'meta-llama/Llama-3.1-8B-Instruct', state: 'ready', context_length: 131_072, quantization: 'bf16' }],
  hardware: {
    gpus: [{ class: 'GH200', name: 'NVIDIA GH200 120GB', vram_mib: 97_871, count: 4 }],
    cpus: 288,
    memory_mib: 870_000,
  },
  job: { id: '4711', partition: 'normal' },
  agent_version: '0.1.0',
  host: 'nid001234',
  addresses: ['10.0.0.1:41234'],
};

export interface Gateway {
  signer: Signer;
  certificate: Uint8Array;
  floor(at: number): Update;
  evict(session: string, reason?: string): EntryUpdate;
}

export function institution(root: Signer = nodeSigner(), crypto: Crypto = nodeCrypto) {
  return {
    root,
    issuer: issuerId(root.publicKey, crypto),
    gateway: (dates: { notBefore?: number; notAfter?: number } = {}, signer: Signer = nodeSigner()): Gateway => {
      const { notBefore = NOW_S - 90 * DAY_S, notAfter = NOW_S + 90 * DAY_S } = dates;
      const certificate = signCertificate({ key: signer.publicKey, notBefore, notAfter }, root);
      return {
        signer,
        certificate,
        floor: (at) => ({ kind: 'floor', floor: signGcWatermark({ certificate, at }, signer) }),
        evict: (session, reason = 'silent') => ({
          kind: 'entry',
          eviction: signEviction({ session, reason }, signer, crypto),
        }),
      };
    },
    revoke: (key: Uint8Array): Update => ({ kind: 'revocation', revocation: signRevocation(key, root) }),
  };
}

export interface TestNode {
  signer: Signer;
  ticket: Ticket;
  session: string;
  says(state: SessionState, version?: number, payload?: Partial<NodePayload>): EntryUpdate;
}

export function node(
  gateway: Gateway,
  fields: { birth?: number; expires?: number; provider?: string; cluster?: string } = {},
  signer: Signer = nodeSigner(),
  crypto: Crypto = nodeCrypto,
): TestNode {
  const { birth = NOW_S, expires = birth + 7 * DAY_S, provider = 'lab', cluster = 'alps' } = fields;
  const bytes = signTicket(
    { certificate: gateway.certificate, sessionKey: signer.publicKey, birth, expires, provider, cluster },
    gateway.signer,
    crypto,
  );
  const ticket = openTicket(bytes, crypto);
  return {
    signer,
    ticket,
    session: ticket.session,
    says(state, version = 1, payload = {}) {
      const encoded = encodePayload({ ...PAYLOAD, ...payload });
      const record = signRecord({ session: ticket.session, state, version, payload: encoded }, signer, crypto);
      return { kind: 'entry', ticket: bytes, record, ...(state === 'LEFT' ? {} : { payload: encoded }) };
    },
  };
}

/** An institution of the simulator: its root, one gateway key, its tickets and its signed statements. */

import type { Crypto, Signer } from '../../shared/lattice/crypto-interface.ts';
import { signEviction } from '../../shared/lattice/eviction.ts';
import { issuerId, signCertificate } from '../../shared/lattice/gateway-certificate.ts';
import { signGcWatermark, signRevocation } from '../../shared/lattice/gateway-key-statements.ts';
import { encodePayload, type NodePayload } from '../../shared/lattice/node-payload.ts';
import type { SessionState } from '../../shared/lattice/node-record.ts';
import type { EntryUpdate, Update } from '../../shared/lattice/registry-update.ts';
import { signRecord } from '../../shared/lattice/signed-record.ts';
import { decodeTicket, signTicket } from '../../shared/lattice/ticket.ts';
import { standInSigner } from './crypto.ts';
import type { Rng } from './random.ts';

/** Seconds since 1970 when virtual time is 0. */
export const EPOCH_S = 1_800_000_000;
const TICKET_LIFE_S = 7 * 86_400;

export class Issuer {
  readonly id: string;
  readonly root: Signer;
  readonly gateway: Signer;
  readonly certificate: Uint8Array;
  readonly #crypto: Crypto;

  constructor(crypto: Crypto, rng: Rng) {
    this.#crypto = crypto;
    this.root = standInSigner(rng);
    this.gateway = standInSigner(rng);
    this.id = issuerId(this.root.publicKey, crypto);
    this.certificate = signCertificate(
      { key: this.gateway.publicKey, notBefore: EPOCH_S - 400 * 86_400, notAfter: EPOCH_S + 400 * 86_400 },
      this.root,
    );
  }

  admit(
    who: { provider: string; cluster: string; birth: number; lifeS?: number },
    signer: Signer,
    host: string,
  ): Membership {
    const { birth, provider, cluster, lifeS = TICKET_LIFE_S } = who;
    const ticket = signTicket(
      {
        certificate: this.certificate,
        sessionKey: signer.publicKey,
        birth,
        expires: birth + lifeS,
        provider,
        cluster,
      },
      this.gateway,
      this.#crypto,
    );
    return new Membership(this.#crypto, signer, ticket, host);
  }

  evict(session: string, reason = 'silent'): Update {
    return { kind: 'entry', eviction: signEviction({ session, reason }, this.gateway, this.#crypto) };
  }

  floor(at: number): Update {
    return { kind: 'floor', floor: signGcWatermark({ certificate: this.certificate, at }, this.gateway) };
  }

  revoke(): Update {
    return { kind: 'revocation', revocation: signRevocation(this.gateway.publicKey, this.root) };
  }
}

/** An agent's state of its session: key, ticket, and the last update. */
export class Membership {
  readonly session: string;
  readonly cluster: string;
  readonly ticket: Uint8Array;
  readonly signer: Signer;
  readonly #crypto: Crypto;
  readonly host: string;
  state: SessionState = 'JOIN';
  version = 0;
  #revision = 0;
  #payload: Uint8Array | undefined;

  constructor(crypto: Crypto, signer: Signer, ticket: Uint8Array, host: string) {
    const { session, cluster } = decodeTicket(ticket, crypto);
    this.#crypto = crypto;
    this.session = session;
    this.cluster = cluster;
    this.ticket = ticket;
    this.signer = signer;
    this.host = host;
  }

  /** The next update of this session. The first one includes the ticket; the payload is included after each change. */
  say(state: SessionState, changesPayload = false): EntryUpdate {
    const first = this.#payload === undefined;
    if (first || changesPayload) this.#payload = encodePayload(payload(this.host, this.#revision++));
    this.version = state === this.state && !first ? this.version + 1 : 1;
    this.state = state;
    return this.#update(first, first || changesPayload);
  }

  /** The last update again, complete, for a node that knows nothing. */
  full(): EntryUpdate {
    return this.#update(true, this.state !== 'LEFT');
  }

  #update(withTicket: boolean, withPayload: boolean): EntryUpdate {
    const bytes = this.#payload ?? new Uint8Array();
    const { session, state, version } = this;
    const record = signRecord({ session, state, version, payload: bytes }, this.signer, this.#crypto);
    const update: EntryUpdate = { kind: 'entry', record };
    if (withTicket) update.ticket = this.ticket;
    if (withPayload && state !== 'LEFT') update.payload = bytes;
    return update;
  }
}

/** The payload of a node with four GPUs and one model: 320 to 340 bytes. */
export function payload(host: string, revision: number): NodePayload {
  return {
    tier: 'stable',
    labels: {},
    models: [
      { id: 'Qwen/Qwen3-32B', state: 'ready', context_length: 32_768, engine: 'vllm', revision: `r${revision}` },
    ],
    hardware: {
      gpus: [{ class: 'GH200', name: 'NVIDIA GH200 120GB', vram_mib: 97_871, count: 4 }],
      cpus: 288,
      memory_mib: 870_000,
    },
    agent_version: '0.1.0',
    host,
    addresses: [`${host}:40123`],
  };
}

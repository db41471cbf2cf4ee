/** An agent as the registry knows it: a key, a ticket, signed records. */
import { env, exports } from 'cloudflare:workers';
import * as z from 'zod';
import { joinTokens } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { newId, newSecret, TOKEN_PREFIX } from '../../../gateway/accounts/secrets.ts';
import { workerdCrypto, workerdSigner } from '../../../gateway/issuer/ed25519.ts';
import { fromBase64url, toBase64url } from '../../../shared/lattice/base64url.ts';
import type { Signer } from '../../../shared/lattice/crypto-interface.ts';
import { encodePayload, type NodePayload } from '../../../shared/lattice/node-payload.ts';
import type { SessionState } from '../../../shared/lattice/node-record.ts';
import { encodeUpdate } from '../../../shared/lattice/registry-update.ts';
import { signRecord } from '../../../shared/lattice/signed-record.ts';
import { decodeTicket, TICKET_MAX_BYTES, type Ticket } from '../../../shared/lattice/ticket.ts';

export async function seedToken(more: { provider?: string; cluster?: string | null; maxNodes?: number | null } = {}) {
  const { plaintext, hash, prefix } = newSecret(TOKEN_PREFIX);
  const { provider = 'lab', cluster = 'alps', maxNodes = null } = more;
  const row = { id: newId('jt'), hash, prefix, name: 'n', provider, cluster, maxNodes, createdAt: 0, revokedAt: null };
  await database(env).insert(joinTokens).values(row);
  return { id: row.id, token: plaintext };
}

function payload(more: Partial<NodePayload> = {}): NodePayload {
  return {
    tier: 'volatile',
    labels: {},
    models: [{ id: 'm', state: 'ready' }],
    hardware: { gpus: [], cpus: 1, memory_mib: 1 },
    agent_version: 'test',
    addresses: [],
    ...more,
  };
}

export function admitRequest(token: string | undefined, body: unknown): Promise<Response> {
  return exports.default.fetch(
    new Request('https://gateway.test/agent/admit', {
      method: 'POST',
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      body: JSON.stringify(body),
    }),
  );
}

const admittedSchema = z.object({ ticket: z.string() });

export class TestAgent {
  readonly signer: Signer;
  readonly ticket: Ticket;
  #version = 0;

  constructor(ticket: Ticket, signer: Signer) {
    this.ticket = ticket;
    this.signer = signer;
  }

  get session(): string {
    return this.ticket.session;
  }

  static async join(token: string, more: object = {}): Promise<TestAgent> {
    const signer = workerdSigner();
    const response = await admitRequest(token, { protocol: 2, public_key: toBase64url(signer.publicKey), ...more });
    if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
    const { ticket } = admittedSchema.parse(await response.json());
    const bytes = fromBase64url(ticket, TICKET_MAX_BYTES) ?? new Uint8Array();
    return new TestAgent(decodeTicket(bytes, workerdCrypto), signer);
  }

  words(state: SessionState = 'SERVING', said: Partial<NodePayload> = {}, version = ++this.#version): Uint8Array {
    const bytes = encodePayload(payload(said));
    const record = signRecord({ session: this.session, state, version, payload: bytes }, this.signer, workerdCrypto);
    return encodeUpdate({ kind: 'entry', record, payload: bytes });
  }

  publish(words: Uint8Array = this.words()) {
    return env.REGISTRY.getByName('registry').publish(this.session, this.ticket.bytes, words);
  }
}

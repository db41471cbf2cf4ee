/** An agent with only a mesh: a session, a record of ordinary size, and what it saw of other members. */
import { nodeCrypto } from '../../../agent/host/node-crypto.ts';
import { createSessionKey, type SessionKey } from '../../../agent/mesh/channel/session-key.ts';
import { Mesh } from '../../../agent/mesh/mesh.ts';
import type { MeshOptions } from '../../../agent/mesh/mesh-options.ts';
import { encodePayload, type NodePayload } from '../../../shared/lattice/node-payload.ts';
import type { SessionState } from '../../../shared/lattice/node-record.ts';
import { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import type { Update } from '../../../shared/lattice/registry-update.ts';
import { signRecord } from '../../../shared/lattice/signed-record.ts';
import { openTicket, type Ticket } from '../../../shared/lattice/ticket.ts';

export interface MemberOptions {
  issuer: string;
  ticket: Uint8Array;
  seed: Uint8Array;
  host?: string;
  listen: MeshOptions['listen'];
  peers?: readonly string[];
  replica?: RegistryReplica;
  /** Addresses to publish instead of the real ones. */
  addresses?: readonly string[];
  /** True: publishes that it is a relay. */
  relay?: boolean;
  more?: Partial<MeshOptions>;
}

export class Member {
  readonly key: SessionKey;
  readonly ticket: Ticket;
  readonly mesh: Mesh;
  readonly ended: string[] = [];
  readonly #host: string;
  readonly #options: MemberOptions;
  #version = 0;

  constructor(options: MemberOptions) {
    this.#options = options;
    this.key = createSessionKey(options.seed);
    this.ticket = openTicket(options.ticket, nodeCrypto);
    this.#host = options.host ?? this.ticket.session;
    this.mesh = new Mesh({
      key: this.key,
      ticket: this.ticket,
      host: this.#host,
      replica:
        options.replica ?? new RegistryReplica({ crypto: nodeCrypto, accepts: (issuer) => issuer === options.issuer }),
      crypto: nodeCrypto,
      issuerName: () => undefined,
      listen: options.listen,
      peers: options.peers ?? [],
      releases: { own: undefined, required: undefined },
      env: {},
      askGateway: () => Promise.resolve('unknown'),
      onEnded: (reason) => this.ended.push(reason),
      log: () => {},
      ...options.more,
    });
  }

  get session(): string {
    return this.ticket.session;
  }

  async open(): Promise<void> {
    await this.mesh.open();
    this.say('SERVING');
  }

  /** Publishes the session's next record. Returns its version. */
  say(state: SessionState): number {
    const version = ++this.#version;
    this.mesh.publish(this.word(state, version));
    return version;
  }

  word(state: SessionState, version: number): Update {
    const payload = encodePayload(this.#payload());
    const record = signRecord({ session: this.session, state, version, payload }, this.key, nodeCrypto);
    return { kind: 'entry', ticket: this.ticket.bytes, record, payload };
  }

  #payload(): NodePayload {
    return {
      tier: 'volatile',
      labels: { project: 'a123' },
      models: [
        {
          id: 'swiss-ai/Apertus-70B-Instruct-2509',
          state: 'ready',
          context_length: 65_536,
          quantization: 'bf16',
          engine: 'vllm',
        },
      ],
      hardware: {
        gpus: [{ class: 'GH200', name: 'NVIDIA GH200 120GB', vram_mib: 97_871, count: 4 }],
        cpus: 288,
        memory_mib: 870_000,
      },
      agent_version: '0.1.0',
      host: this.#host,
      addresses: [...(this.#options.addresses ?? this.mesh.addresses)],
      ...(this.#options.relay === true ? { relay: true } : {}),
    };
  }

  close(): void {
    this.mesh.close();
  }
}

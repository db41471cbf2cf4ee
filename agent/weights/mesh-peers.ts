import type { Duplex } from 'node:stream';
import { decodeTicket, type Ticket } from '../../shared/lattice/ticket.ts';
import { nodeCrypto } from '../host/crypto.ts';
import type { Proven } from '../mesh/channel/accept.ts';
import type { Mesh } from '../mesh/mesh.ts';
import type { PeerName, Peers } from './peers.ts';

/** The mesh of the agent's current session. */
export class MeshPeers implements Peers {
  readonly #issuerName: (issuer: string) => string | undefined;
  #mesh: Mesh | undefined;
  #own: PeerName | undefined;
  /** The peers since the last change; undefined: must be read again. */
  #others: PeerName[] | undefined;
  #sessions = '';
  #changedAt = performance.now();
  #unwatch: () => void = () => {};
  readonly #joined = Promise.withResolvers<void>();

  /** `issuerName`: the local name of an issuer; undefined for the own one. */
  constructor(issuerName: (issuer: string) => string | undefined) {
    this.#issuerName = issuerName;
  }

  /** From now on this node acts as that session. */
  join(mesh: Mesh, ticket: Pick<Ticket, 'session' | 'provider' | 'cluster'>): void {
    this.#unwatch();
    this.#mesh = mesh;
    const { session, provider, cluster } = ticket;
    this.#own = { session, provider, cluster };
    this.#look();
    this.#changedAt = performance.now();
    this.#unwatch = mesh.watch(() => this.#look());
    this.#joined.resolve();
  }

  /** Resolves when there is a mesh. */
  get joined(): Promise<void> {
    return this.#joined.promise;
  }

  #look(): void {
    this.#others = undefined;
    const sessions = this.others()
      .map(({ session }) => session)
      .sort()
      .join();
    if (sessions !== this.#sessions) this.#changedAt = performance.now();
    this.#sessions = sessions;
  }

  own(): PeerName | undefined {
    return this.#own;
  }

  others(): PeerName[] {
    this.#others ??= this.#view();
    return this.#others;
  }

  #view(): PeerName[] {
    const others: PeerName[] = [];
    for (const { entry, liveness } of this.#mesh?.view() ?? []) {
      if (entry.session === this.#own?.session || liveness !== 'alive' || entry.state === 'LEFT') continue;
      const { addresses = [], weights } = entry.payload ?? {};
      // A node that stores no weights answers no questions about them.
      if (addresses.length === 0 || weights === undefined) continue;
      const issuer = this.#issuerName(entry.ticket.issuer);
      const { provider, cluster } = entry.ticket;
      others.push({ session: entry.session, provider: named(provider, issuer), cluster });
    }
    return others;
  }

  changedAt(): number {
    return this.#changedAt;
  }

  /** True if its ticket is valid now: a session that was evicted, or has left, gets nothing more. */
  admits({ ticket }: Pick<Proven['peer'], 'ticket'>): boolean {
    return this.#mesh?.replica.ticketState(decodeTicket(new Uint8Array(ticket), nodeCrypto)) === 'good';
  }

  async connect(session: string, signal: AbortSignal): Promise<Duplex> {
    if (this.#mesh === undefined) throw new Error('this node is in no mesh yet');
    const { socket } = await this.#mesh.connectForWeights(session, signal);
    socket.setNoDelay(true);
    return socket;
  }

  close(): void {
    this.#unwatch();
  }
}

/** The node at the other end of a connection. */
export function peerNameOf({ peer }: Pick<Proven, 'peer'>): PeerName {
  const { cluster } = decodeTicket(new Uint8Array(peer.ticket), nodeCrypto);
  return { session: peer.session, provider: peer.provider, cluster };
}

function named(provider: string, issuer: string | undefined): string {
  return issuer === undefined ? provider : `${provider}@${issuer}`;
}

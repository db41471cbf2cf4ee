import type { Duplex } from 'node:stream';
import type { Liveness } from '../../shared/gossip/gossip-events.ts';
import type { Entry } from '../../shared/lattice/replica-entry.ts';
import { decodeTicket, type Ticket } from '../../shared/lattice/ticket.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { nodeCrypto } from '../host/node-crypto.ts';
import type { ProvenConnection } from '../mesh/channel/accept-channel.ts';
import type { Mesh } from '../mesh/mesh.ts';
import type { PeerName, Peers } from './peer-directory.ts';

/** The peers for weights: the nodes of the mesh of the agent's current session. */
export class MeshPeers implements Peers {
  readonly #issuerName: (issuer: string) => string | undefined;
  #mesh: Mesh | undefined;
  #self: PeerName | undefined;
  /** Nodes that can be asked, by session. The registry bounds them. */
  readonly #known = new Map<string, PeerName>();
  /** The nodes of `#known` as a list. Undefined after a node came, went or changed. */
  #others: PeerName[] | undefined;
  #changedAt = performance.now();
  #unwatch: () => void = () => {};
  #joined = Promise.withResolvers<void>();

  /** @param issuerName returns the local name of an issuer; undefined for this agent's issuer */
  constructor(issuerName: (issuer: string) => string | undefined) {
    this.#issuerName = issuerName;
  }

  /** Call when a session has joined the mesh: this node then acts as that session. */
  join(mesh: Mesh, ticket: Pick<Ticket, 'session' | 'provider' | 'cluster'>): void {
    this.#unwatch();
    this.#mesh = mesh;
    const { session, provider, cluster } = ticket;
    this.#self = { session, provider, cluster };
    this.#known.clear();
    this.#others = undefined;
    for (const { entry, liveness } of mesh.view()) this.#addOrRemove(entry, liveness);
    this.#changedAt = performance.now();
    this.#unwatch = mesh.watch((sessions) => {
      for (const name of sessions) this.#update(mesh, name);
    });
    this.#joined.resolve();
  }

  /**
   * Call when the session ends and another one follows. The peers stay until the next session joins, for
   * pulls that run, but `joined` waits for it: a mesh that the node leaves answers no more questions.
   */
  leave(): void {
    const waiting = this.#joined;
    this.#joined = Promise.withResolvers();
    neverRejects(this.#joined.promise.then(waiting.resolve));
  }

  /** Resolves when the current session has joined its mesh. */
  get joined(): Promise<void> {
    return this.#joined.promise;
  }

  /** Updates one session. Reading the whole replica after each change of a large network would take minutes. */
  #update(mesh: Mesh, session: string): void {
    const was = this.#known.delete(session);
    const entry = mesh.replica.get(session);
    if (entry !== undefined) this.#addOrRemove(entry, mesh.liveness(session));
    const is = this.#known.has(session);
    if (was || is) this.#others = undefined;
    if (was !== is) this.#changedAt = performance.now();
  }

  #addOrRemove({ session, state, payload, ticket }: Entry, liveness: Liveness): void {
    if (session === this.#self?.session || liveness !== 'alive' || state === 'LEFT') return;
    const { addresses = [], weights } = payload ?? {};
    // A node that stores no weights does not answer requests about them.
    if (addresses.length === 0 || weights === undefined) return;
    const { provider, cluster } = ticket;
    this.#known.set(session, { session, provider: named(provider, this.#issuerName(ticket.issuer)), cluster });
  }

  self(): PeerName | undefined {
    return this.#self;
  }

  others(): PeerName[] {
    this.#others ??= [...this.#known.values()];
    return this.#others;
  }

  changedAt(): number {
    return this.#changedAt;
  }

  /** True if the peer's ticket is valid now. A session that was evicted, or has left, gets nothing more. */
  admits({ ticket }: Pick<ProvenConnection['peer'], 'ticket'>): boolean {
    return this.#mesh?.replica.ticketState(decodeTicket(new Uint8Array(ticket), nodeCrypto)) === 'good';
  }

  async connect(session: string, signal: AbortSignal): Promise<Duplex> {
    if (this.#mesh === undefined) throw new Error('this node has not joined the mesh yet');
    const { socket } = await this.#mesh.connectForWeights(session, signal);
    socket.setNoDelay(true);
    return socket;
  }

  close(): void {
    this.#unwatch();
  }
}

/** The node at the other end of a connection. */
export function peerNameOf({ peer }: Pick<ProvenConnection, 'peer'>): PeerName {
  const { cluster } = decodeTicket(new Uint8Array(peer.ticket), nodeCrypto);
  return { session: peer.session, provider: peer.provider, cluster };
}

function named(provider: string, issuer: string | undefined): string {
  return issuer === undefined ? provider : `${provider}@${issuer}`;
}

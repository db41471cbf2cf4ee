import type { RegistryEntry } from '../../shared/lattice/node-record.ts';
import type { RegistryReplica } from '../../shared/lattice/registry-replica.ts';
import { NodeIndex } from '../../shared/routing/node-index.ts';
import { registryEntry } from '../../shared/routing/registry-entry.ts';

/** Maximum number of LEFT sessions that are kept. Those that left first are dropped first. */
const LEFT_MAX = 20_000;

/** A session's liveness in this agent's view. `unreachable` describes only the path from here. */
type Liveness = 'alive' | 'suspected' | 'unreachable';

interface RegistryNodeIndexOptions {
  replica: Pick<RegistryReplica, 'get'>;
  liveness(session: string): Liveness;
  /** Returns the local name of an issuer; undefined if it is not listed. */
  issuerName(issuer: string): string | undefined;
  /** The local name of this agent's issuer. */
  own: string;
  /** How long a session that LEFT is shown, and its models stay known. */
  retentionMs(): number;
  /** Milliseconds since 1970. */
  now(): number;
}

/** The nodes of this agent's replica, indexed for routing and for display. */
export class RegistryNodeIndex {
  readonly index = new NodeIndex();
  readonly #options: RegistryNodeIndexOptions;
  /** When this agent saw that a session LEFT, by session, oldest first. */
  readonly #left = new Map<string, number>();
  /** Grows with every change of the data that is shown. */
  #version = 0;

  constructor(options: RegistryNodeIndexOptions) {
    this.#options = options;
  }

  get version(): number {
    return this.#version;
  }

  /** Call when entries of these sessions were added, changed or collected, or when their liveness changed. */
  changed(sessions: Iterable<string>): void {
    for (const session of sessions) this.#read(session);
    this.#sweep();
  }

  /** Adds a node that is not in the replica: this node, before a gateway has admitted it. */
  put(entry: RegistryEntry): void {
    this.index.put(entry);
    this.#version++;
  }

  delete(session: string): void {
    this.index.delete(session);
    this.#left.delete(session);
    this.#version++;
  }

  #read(session: string): void {
    const { replica, liveness, issuerName, own, now } = this.#options;
    const entry = replica.get(session);
    const issuer = entry && issuerName(entry.issuer);
    const before = this.index.get(session);
    // The session has LEFT, and the replica has dropped it. The index still shows it and its models until the end of
    // `retentionMs`.
    if (entry === undefined && before?.state === 'LEFT') return;
    const shown =
      entry === undefined || issuer === undefined
        ? undefined
        : registryEntry(entry, {
            issuer,
            own,
            connected: liveness(session) !== 'unreachable',
            suspected: liveness(session) === 'suspected',
            updatedAt: now(),
            before,
          });
    if (shown === undefined) return this.delete(session);
    this.index.put(shown);
    this.#version++;
    if (shown.state !== 'LEFT') return;
    if (!this.#left.has(session)) this.#left.set(session, now());
  }

  #sweep(): void {
    const expired = this.#options.now() - this.#options.retentionMs();
    for (const [session, at] of this.#left) {
      if (at > expired && this.#left.size <= LEFT_MAX) return;
      this.delete(session);
    }
  }
}

import type { RegistryEntry } from '../../shared/lattice/node.ts';
import type { RegistryReplica } from '../../shared/lattice/replica.ts';
import { NodeIndex } from '../../shared/routing/nodes.ts';
import { registryEntry } from '../../shared/routing/registry-entry.ts';

/** LEFT sessions kept beside the live ones; the first that left make room. */
const LEFT_MAX = 20_000;

/** As this agent sees a session; `unreachable` says something about our path alone. */
type Liveness = 'alive' | 'suspected' | 'unreachable';

interface ReplicaNodesOptions {
  replica: Pick<RegistryReplica, 'get'>;
  liveness(session: string): Liveness;
  /** Local name of an issuer; undefined for one that is on no list. */
  issuerName(issuer: string): string | undefined;
  /** Local name of our own issuer. */
  own: string;
  /** A session that LEFT is shown, and the models it served are known, this long. */
  retentionMs(): number;
  /** Milliseconds since the epoch. */
  now(): number;
}

/** This agent's replica, indexed for choosing a node and for showing them. */
export class ReplicaNodes {
  readonly index = new NodeIndex();
  readonly #options: ReplicaNodesOptions;
  /** Sessions that LEFT, in that order, with the time. */
  readonly #left = new Map<string, number>();
  /** Changes with everything that is shown. */
  #version = 0;

  constructor(options: ReplicaNodesOptions) {
    this.#options = options;
  }

  get version(): number {
    return this.#version;
  }

  /** Entries of these sessions came, changed or were collected, or their liveness did. */
  changed(sessions: Iterable<string>): void {
    for (const session of sessions) this.#read(session);
    this.#sweep();
  }

  /** A node that is in no replica yet: ourselves before a gateway has admitted us. */
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
    // What was collected is gone from the replica; its models stay known for as long as they would have.
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

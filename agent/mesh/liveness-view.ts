import type { Liveness } from '../../shared/gossip/gossip-events.ts';
import type { RegistryReplica } from '../../shared/lattice/registry-replica.ts';
import type { Entry } from '../../shared/lattice/replica-entry.ts';

export interface PeerLiveness {
  entry: Entry;
  liveness: Liveness;
}

/** Called with sessions whose entry in the replica changed, or whose liveness changed in this agent's view. */
export type LivenessWatcher = (sessions: readonly string[]) => void;

/** The registry in this agent's view: its replica with its own liveness table. Notifies watchers of each change. */
export class LivenessView {
  readonly #replica: RegistryReplica;
  /**
   * Sessions that are suspected or unreachable; any other session is alive. Holds only sessions of the replica, so its
   * size is bounded.
   */
  readonly #liveness = new Map<string, Liveness>();
  /** Callbacks for changes. Each part of this program adds at most one. */
  readonly #watchers = new Set<LivenessWatcher>();

  constructor(replica: RegistryReplica) {
    this.#replica = replica;
  }

  liveness(session: string): Liveness {
    return this.#liveness.get(session) ?? 'alive';
  }

  *view(): Generator<PeerLiveness> {
    for (const entry of this.#replica.entries()) yield { entry, liveness: this.liveness(entry.session) };
  }

  /** Calls `watcher` after every change, until the returned function is called. */
  watch(watcher: LivenessWatcher): () => void {
    this.#watchers.add(watcher);
    return () => void this.#watchers.delete(watcher);
  }

  setLiveness(session: string, liveness: Liveness): void {
    if (liveness === 'alive') this.#liveness.delete(session);
    else this.#liveness.set(session, liveness);
    this.#report([session]);
  }

  changed(sessions: readonly string[]): void {
    for (const session of sessions) {
      const entry = this.#replica.get(session);
      if (entry === undefined || entry.state === 'LEFT') this.#liveness.delete(session);
    }
    this.#report(sessions);
  }

  #report(sessions: readonly string[]): void {
    for (const watcher of this.#watchers) watcher(sessions);
  }

  /** A random session that this agent does not reach; undefined if there is none. */
  randomUnreachable(random: () => number): string | undefined {
    const unreachable = [...this.#liveness].flatMap(([session, liveness]) =>
      liveness === 'unreachable' ? [session] : [],
    );
    return unreachable[Math.floor(random() * unreachable.length)];
  }
}

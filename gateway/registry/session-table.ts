import { MEMBERSHIP_DEFAULTS } from '../../shared/gossip/index.ts';
import type { RegistryEntry } from '../../shared/lattice/node-record.ts';
import type { Entry } from '../../shared/lattice/replica-entry.ts';
import { NodeIndex } from '../../shared/routing/node-index.ts';
import { registryEntry } from '../../shared/routing/registry-entry.ts';
import { LOCAL_ISSUER } from '../../shared/routing/trusted-providers.ts';
import { SnapshotStore } from './snapshot-store.ts';

/**
 * Maximum LEFT sessions that are shown. The oldest are dropped first, except for a session that is the only one with
 * one of its models, because the model would become unknown.
 */
const LEFT_MAX = 2_000;
/** If there are more LEFT sessions than this, even the only session with a model is dropped. */
const LEFT_HARD_MAX = 4_000;

/** Reason for the end of a session that did not answer and gave no reason. */
export const SILENT_REASON = 'silent';
const KILLED = 'killed';

type Suspicion = 'tunnel' | 'gossip';

/**
 * State of the tunnel between a session and this gateway. `closed`: it was open before. Absent: the session never had a
 * tunnel to this gateway.
 */
type Tunnel = 'open' | 'closed';

interface SessionTableOptions {
  /** Returns this gateway's name for an issuer; undefined if the issuer is not listed. */
  issuerName(id: string): string | undefined;
  now(): number;
  /** Called to store the session as it is shown; undefined: to remove it. */
  onShown(session: string, shown: RegistryEntry | undefined): void;
  /**
   * Called if a session is shown differently. `before` undefined: it was not shown; `now` undefined: it is not shown
   * any more.
   */
  onNews(before: RegistryEntry | undefined, now: RegistryEntry | undefined, reason: string | undefined): void;
}

/**
 * The sessions as this gateway shows them and routes to them. Their records come from the lattice; tunnels and
 * suspicions hold for this gateway only. Requests are routed to a session that is SERVING, is not suspected, and has an
 * open tunnel to this gateway.
 */
export class SessionTable {
  readonly store: SnapshotStore;
  /** Milliseconds for which LEFT sessions are shown, and the models that they served are known. */
  retentionMs = MEMBERSHIP_DEFAULTS.retention_ms;
  readonly #index = new NodeIndex();
  readonly #options: SessionTableOptions;
  readonly #tunnels = new Map<string, Tunnel>();
  /** Suspected sessions by source: the session's tunnel does not answer, or gossip suspects it. */
  readonly #suspected: Record<Suspicion, Set<string>> = { tunnel: new Set(), gossip: new Set() };
  /** LEFT sessions in the order in which they left. */
  readonly #left = new Set<string>();

  constructor(epoch: string, options: SessionTableOptions) {
    this.store = new SnapshotStore(epoch);
    this.#options = options;
  }

  get size(): number {
    return this.#index.size;
  }

  isOpen(session: string): boolean {
    return this.#tunnels.get(session) === 'open';
  }

  /** Yields sessions with an open tunnel to this gateway. */
  *open(): Generator<string> {
    for (const [session, tunnel] of this.#tunnels) if (tunnel === 'open') yield session;
  }

  entries(): IterableIterator<RegistryEntry> {
    return this.#index.entries();
  }

  get(session: string): RegistryEntry | undefined {
    return this.#index.get(session);
  }

  /** Shows a session as it was shown before this object slept. */
  restore(shown: RegistryEntry): void {
    const { session, state, suspected, connected } = shown;
    if (state === 'LEFT') this.#left.add(session);
    else if (connected) this.#tunnels.set(session, 'open');
    else if (suspected) this.#tunnels.set(session, 'closed');
    if (connected && suspected) this.#suspected.gossip.add(session);
    this.#index.put(shown);
    this.store.put(shown);
  }

  /** Updates a session after its entry in the lattice changed; undefined: the entry was dropped. */
  update(session: string, entry: Entry | undefined, wasKilled = false): void {
    if (entry === undefined) {
      if (!this.#left.has(session)) this.#forget(session);
      return;
    }
    this.#show(entry, wasKilled);
  }

  tunnel(session: string, tunnel: Tunnel, entry: Entry | undefined): void {
    // A tunnel that was never open here leaves no state when it closes.
    if (tunnel === 'closed' && !this.#tunnels.has(session)) return;
    if (entry === undefined || entry.state === 'LEFT') this.#tunnels.delete(session);
    else this.#tunnels.set(session, tunnel);
    if (entry !== undefined) this.#show(entry);
  }

  /** Sets or clears a suspicion. A suspected session gets no requests. */
  suspect(session: string, by: Suspicion, suspected: boolean, entry: Entry | undefined): void {
    const suspects = this.#suspected[by];
    if (suspects.has(session) === suspected || entry === undefined || entry.state === 'LEFT') return;
    if (suspected) suspects.add(session);
    else suspects.delete(session);
    this.#show(entry);
  }

  /**
   * Records that other nodes reach the session and this gateway does not, because the session serves another gateway.
   */
  elsewhere(session: string, entry: Entry | undefined): void {
    if (this.#tunnels.get(session) === 'closed') this.#tunnels.delete(session);
    this.suspect(session, 'gossip', false, entry);
    if (entry !== undefined) this.#show(entry);
  }

  /** Removes a session whose issuer is no longer listed. */
  remove(session: string): void {
    this.#forget(session);
  }

  #show(entry: Entry, wasKilled = false): void {
    const { session } = entry;
    const issuer = this.#options.issuerName(entry.issuer);
    if (issuer === undefined) return this.#forget(session);
    const tunnel = this.#tunnels.get(session);
    const connected = tunnel === 'open';
    const unroutableReason = this.#unroutableReason(session);
    const suspected = unroutableReason !== undefined;
    const before = this.#index.get(session);
    // A session that left before it was ever shown is not shown.
    if (entry.state === 'LEFT' && before === undefined) return;
    const updatedAt = this.#options.now();
    const read = registryEntry(entry, { issuer, own: LOCAL_ISSUER, connected, suspected, updatedAt, before });
    const shown = read?.state === 'LEFT' ? withReason(read, entry, wasKilled) : read;
    if (shown === undefined || (before !== undefined && sameNews(before, shown))) return;
    if (shown.state === 'LEFT') this.#retire(session);
    this.#index.put(shown);
    this.store.put(shown);
    this.#options.onShown(session, shown);
    this.#options.onNews(before, shown, shown.state === 'LEFT' ? undefined : unroutableReason);
    if (this.#left.size > LEFT_MAX) this.#makeRoom();
  }

  /** Returns why no request is routed to the session; undefined: requests may be. */
  #unroutableReason(session: string): string | undefined {
    if (this.#tunnels.get(session) === 'closed') return 'its tunnel closed';
    if (this.#suspected.tunnel.has(session)) return 'it did not answer';
    return this.#suspected.gossip.has(session) ? 'other nodes cannot reach it' : undefined;
  }

  #retire(session: string): void {
    this.#clear(session);
    this.#left.add(session);
  }

  #clear(session: string): void {
    this.#tunnels.delete(session);
    for (const suspects of Object.values(this.#suspected)) suspects.delete(session);
  }

  #forget(session: string): void {
    this.#clear(session);
    this.#left.delete(session);
    const before = this.#index.get(session);
    if (before === undefined) return;
    this.#index.delete(session);
    this.store.delete(session);
    this.#options.onShown(session, undefined);
    this.#options.onNews(before, undefined, 'forgotten');
  }

  /** Removes sessions that left longer ago than the retention. */
  sweep(): void {
    const now = this.#options.now();
    for (const session of this.#left) {
      const shown = this.#index.get(session);
      if (shown !== undefined && now - Date.parse(shown.updated_at) <= this.retentionMs) continue;
      this.#forget(session);
    }
  }

  #makeRoom(): void {
    for (const session of this.#left) {
      const alone = this.#index.get(session)?.models.some(({ id }) => this.#index.model(id)?.all.length === 1) ?? false;
      if (alone && this.#left.size <= LEFT_HARD_MAX) continue;
      return this.#forget(session);
    }
  }
}

/**
 * Adds the reason why a session left: the reason of its eviction, otherwise the reason that its agent gave. `silent`
 * and `killed` are used only if the agent gave no reason.
 */
function withReason(shown: RegistryEntry, { eviction }: Entry, wasKilled: boolean): RegistryEntry {
  const ordered = eviction !== undefined && eviction.reason !== SILENT_REASON ? eviction.reason : undefined;
  const why = ordered ?? shown.leaving ?? (wasKilled ? KILLED : eviction?.reason);
  return why === undefined ? shown : { ...shown, leaving: why };
}

function sameNews(a: RegistryEntry, b: RegistryEntry): boolean {
  return (
    a.version === b.version &&
    a.state === b.state &&
    a.suspected === b.suspected &&
    a.connected === b.connected &&
    a.issuer === b.issuer &&
    // Compares the whole entries and not only their versions: of two records with the same version, the lattice may
    // have chosen another one since.
    JSON.stringify({ ...a, updated_at: '' }) === JSON.stringify({ ...b, updated_at: '' })
  );
}

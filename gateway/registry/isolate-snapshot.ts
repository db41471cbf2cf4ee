import type { RegistryEntry } from '../../shared/lattice/node-record.ts';
import { type ModelNodes, NodeIndex } from '../../shared/routing/node-index.ts';
import { AdaptiveTimeout } from '../../shared/timing/adaptive-timeout.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { isRecent } from '../../shared/timing/is-recent.ts';
import { type GatewaySettings, mayPublish, NO_SETTINGS } from '../accounts/gateway-settings.ts';
import type { Env } from '../env.ts';
import type { HttpRequest } from '../http/http-request.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import { waitAtMost, waitClock } from '../platform/wait-clock.ts';
import type { ListedIssuer } from './listed-issuers.ts';
import type { SnapshotDelta, SnapshotSource } from './snapshot-store.ts';

/** A view that is younger than this is used without reading it again. */
const FRESH_MS = 500;
/** A view that is older than this is used only after waiting for a read. */
const STALE_MS = 5_000;
/**
 * Bounds on how long a request waits for the read: longer if the registry was slow before. Without the wait, a model
 * that was just registered would be unknown.
 */
const REFRESH_WAIT = { leastMs: 300, mostMs: 5_000 };
/**
 * How long a suspicion lasts that only this isolate has. It is longer than the time in which an update of the registry
 * arrives through a snapshot cache.
 */
const OWN_SUSPICION_MS = 1_500;

/**
 * The registry as one isolate sees it, with the indexes that requests need. All callers get the same object, which is
 * updated in place.
 */
export interface RegistrySnapshot {
  /** Identifies the visible state and changes with it. */
  readonly tag: string;
  readonly nodes: NodeIndex;
  readonly settings: GatewaySettings;
  /** Issuers of accepted tickets by id; empty until the registry has answered. */
  readonly issuers: ReadonlyMap<string, ListedIssuer>;
  /** This gateway's id as a gossip peer; empty until the registry has answered. */
  readonly gateway: string;
  /**
   * Returns the sessions that serve or served a model, including LEFT sessions. A model for which there are sessions is
   * known.
   */
  model(id: string): ModelNodes | undefined;
}

/** Returns a text that lists what providers may publish. Two such texts are compared to detect a change. */
function publishLists({ providers }: GatewaySettings): string {
  return JSON.stringify(
    Object.entries(providers).flatMap(([id, { models }]) => (models === undefined ? [] : [id, models])),
  );
}

class IsolateView implements RegistrySnapshot {
  readonly nodes = new NodeIndex();
  settings: GatewaySettings = NO_SETTINGS;
  issuers: ReadonlyMap<string, ListedIssuer> = new Map();
  gateway = '';
  /**
   * True if a provider may publish other models than before, so that the unfiltered entries are needed again. It stays
   * true until a whole delta arrives, because an overlapping read may bring the same settings once more.
   */
  #relisted = false;
  /** The registry's tag, which the isolate sends to get differences. */
  #base = '';
  /** The last tag that changed the visible state. Loads are not part of that state. */
  #tag = '';
  #revision = 0;
  /** The registry's entries of sessions that only this isolate suspects, in the order of suspicion. */
  readonly #suspicions = new Map<string, { entry: RegistryEntry; at: number }>();

  get tag(): string {
    return this.#revision === 0 ? this.#tag : `${this.#tag}.${this.#revision}`;
  }

  /** The tag to send with a request to the registry; null: none. */
  get base(): string | null {
    return this.#base || null;
  }

  model(id: string): ModelNodes | undefined {
    return this.nodes.model(id);
  }

  /** Applies a delta. The cost grows with the changes, not with all sessions. */
  apply(delta: SnapshotDelta): void {
    if (delta.whole) {
      this.nodes.clear();
      this.#suspicions.clear();
      const left = new Set(delta.entries.map(({ session }) => session));
      this.nodes.live.retain((session) => left.has(session));
    }
    this.#settle(delta.carried?.settings);
    for (const entry of delta.entries) {
      this.#suspicions.delete(entry.session);
      this.nodes.put(this.#publishable(entry));
    }
    for (const session of delta.removed) {
      this.#suspicions.delete(session);
      this.nodes.delete(session);
    }
    const { carried } = delta;
    if (carried !== undefined) {
      this.issuers = new Map(carried.issuers.map((issuer) => [issuer.id, issuer]));
      this.gateway = carried.gateway;
    }
    if (delta.live !== undefined) this.nodes.live.apply(delta.live);
    if (delta.whole) this.#relisted = false;
    this.#base = this.#relisted ? '' : delta.tag;
    const shows = delta.whole || delta.entries.length > 0 || delta.removed.length > 0 || carried !== undefined;
    if (!shows && this.#tag !== '') return;
    this.#tag = delta.tag;
    this.#revision = 0;
  }

  /** Adds defaults to the settings, because a registry of an earlier version sends fewer settings. */
  #settle(settings: GatewaySettings | undefined): void {
    if (settings === undefined) return;
    const before = publishLists(this.settings);
    this.settings = { ...NO_SETTINGS, ...settings };
    this.#relisted ||= publishLists(this.settings) !== before;
  }

  /** Returns the entry without models that its provider may not publish. */
  #publishable(entry: RegistryEntry): RegistryEntry {
    const given = ({ id }: { id: string }) => mayPublish(this.settings, entry.provider, id);
    return entry.models.every(given) ? entry : { ...entry, models: entry.models.filter(given) };
  }

  /**
   * Shows a session as suspected. `gone`: the tunnel object reported that the session has left; the registry's entry
   * with that state will follow.
   */
  suspect(session: string, now: number, gone: boolean): void {
    const entry = this.nodes.get(session);
    if (entry === undefined || (entry.suspected && !gone) || entry.state === 'LEFT') return;
    const before = this.#suspicions.get(session)?.entry ?? entry;
    this.#suspicions.delete(session); // the map stays in the order of suspicion
    this.#suspicions.set(session, { entry: before, at: now });
    const news = gone ? ({ state: 'LEFT', connected: false } as const) : { suspected: true };
    this.nodes.put({ ...entry, ...news, updated_at: new Date(now).toISOString() });
    this.#revision++;
  }

  /** Withdraws suspicions from before this time: the registry has answered since and does not share them. */
  withdrawBefore(before: number): void {
    for (const [session, { entry, at }] of this.#suspicions) {
      if (at > before) return; // the map is in the order of suspicion
      this.#suspicions.delete(session);
      this.nodes.put(entry);
      this.#revision++;
    }
  }
}

/**
 * The isolate's copy of the registry. Requests normally use it without waiting. While requests arrive it is normally at
 * most a second old. An isolate without requests does not read the registry.
 */
class IsolateSnapshot {
  readonly #view = new IsolateView();
  readonly #wait = new AdaptiveTimeout(REFRESH_WAIT);
  #checkedAt = Number.NEGATIVE_INFINITY;
  #refreshing: { done: Promise<void>; since: number; fresh: boolean } | undefined;
  /**
   * Number of the latest read. `#answered`: number of the latest read whose answer was used. An answer is dropped if
   * the answer to a later read arrived first.
   */
  #asked = 0;
  #answered = 0;
  #location: string | undefined;

  /**
   * Sets this isolate's location from the first request that has one. Snapshots are then read from the location's
   * snapshot cache, if there is one.
   */
  locate(request: HttpRequest): void {
    this.#location ??= coloOf(request.cf);
  }

  /**
   * Returns the view for one request. `enough` returns whether the view is sufficient for the request. If it is not
   * (for an unknown model, for example), or if the view is old, this waits for one read, for at most 300 ms, or longer
   * if recent reads took longer. All requests share a read.
   */
  get(
    env: Env,
    ctx: { waitUntil(work: Promise<unknown>): void },
    now: number,
    enough: (view: RegistrySnapshot) => boolean,
  ): RegistrySnapshot | Promise<RegistrySnapshot> {
    const fresh = isRecent(FRESH_MS, this.#checkedAt, now);
    if (fresh && enough(this.#view)) return this.#view;
    const isEnough = enough(this.#view);
    const before = this.#refreshing;
    const refreshed = this.#refresh(env, now, !isEnough);
    // Only a read that this request started is kept alive. A read of another request belongs to that request's context:
    // if that request is canceled, the read never settles.
    if (refreshed !== before?.done) ctx.waitUntil(refreshed);
    if (isRecent(STALE_MS, this.#checkedAt, now) && isEnough) return this.#view;
    return waitAtMost(refreshed, this.#wait.ms).then(() => this.#view);
  }

  /** The view as it is, without a read. */
  get view(): RegistrySnapshot {
    return this.#view;
  }

  /**
   * Shows a session as suspected, because this isolate got no answer from it. The registry's next entry for the session
   * replaces this state.
   */
  suspect(session: string, now: number, gone = false): void {
    this.#view.suspect(session, now, gone);
  }

  /** Reads the registry unless the view is younger than `ms`. No request waits for it. */
  refreshOlder(env: Env, now: number, ms: number): void {
    if (!isRecent(ms, this.#checkedAt, now)) neverRejects(this.#refresh(env, now, false));
  }

  #refresh(env: Env, now: number, fresh: boolean): Promise<void> {
    const current = this.#refreshing;
    // If the request that started a read was canceled, the read never settles, so a new request starts another.
    if (current !== undefined && isRecent(2 * this.#wait.ms, current.since, now) && (current.fresh || !fresh))
      return current.done;
    const done = this.#ask(env, now, fresh, ++this.#asked).finally(() => {
      if (this.#refreshing?.done === done) this.#refreshing = undefined;
    });
    this.#refreshing = { done, since: now, fresh };
    return done;
  }

  async #ask(env: Env, now: number, fresh: boolean, number: number): Promise<void> {
    const askedAt = waitClock.now();
    try {
      let delta = await source(env, this.#location).snapshot(this.#view.base, fresh);
      this.#wait.answered(waitClock.now() - askedAt);
      if (number < this.#answered) return;
      this.#answered = number;
      while (delta !== null) {
        this.#view.apply(delta);
        if (delta.more !== true) break;
        // Between two parts, the tokens of open streams are sent. On Node, all objects share the event loop.
        await new Promise((resolve) => setTimeout(resolve));
        if (number < this.#answered) return;
        delta = await source(env, this.#location).snapshot(this.#view.base, false);
      }
      this.#view.withdrawBefore(now - OWN_SUSPICION_MS);
      this.#checkedAt = Date.now();
    } catch {
      // The registry object cannot be reached, for example because it restarts. The view stays, and a later request
      // reads again.
    }
  }
}

function source(env: Env, location: string | undefined): SnapshotSource {
  if (env.RELAY === undefined || !location) return env.REGISTRY.getByName(REGISTRY_OBJECT_NAME);
  return env.RELAY.getByName(location);
}

export const isolateSnapshot = new IsolateSnapshot();

function coloOf(cf: unknown): string {
  return typeof cf === 'object' && cf !== null && 'colo' in cf ? String(cf.colo ?? '') : '';
}

import { isRecent } from '../../shared/collections/is-recent.ts';
import type { RegistryEntry } from '../../shared/lattice/node.ts';
import { type ModelNodes, NodeIndex } from '../../shared/routing/nodes.ts';
import { AdaptiveTimeout } from '../../shared/timing/adaptive-timeout.ts';
import { type GatewaySettings, mayPublish, NO_SETTINGS } from '../accounts/settings.ts';
import type { Env } from '../env.ts';
import type { HttpRequest } from '../http/http-request.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import { waitAtMost, waitClock } from '../platform/wait-clock.ts';
import type { ListedIssuer } from './issuers.ts';
import type { SnapshotDelta, SnapshotSource } from './snapshot-store.ts';

/** A younger view is used as it is. */
const FRESH_MS = 500;
/** An older one is not used without asking. */
const STALE_MS = 5_000;
/** How long a request waits for the answer: more where the registry took longer. A model that has just come would else be unknown. */
const REFRESH_WAIT = { leastMs: 300, mostMs: 5_000 };
/** A session that this isolate found silent stays suspected for this long: longer than the registry's news takes by way of a relay. */
const OWN_SUSPICION_MS = 1_500;

/** The registry as one isolate sees it, with the indexes that a request needs. One object that is updated in place, not a copy. */
export interface RegistrySnapshot {
  /** Names what the view shows; changes with it. */
  readonly tag: string;
  readonly nodes: NodeIndex;
  readonly settings: GatewaySettings;
  /** Whose tickets are good here, by id; none before the registry was first asked. */
  readonly issuers: ReadonlyMap<string, ListedIssuer>;
  /** This gateway's name as a gossip peer; empty before. */
  readonly gateway: string;
  /** Sessions by the models they serve or served, LEFT sessions included. A model with sessions here is a known model. */
  model(id: string): ModelNodes | undefined;
}

/** What providers may publish, as a text that changes with it. */
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
  /** A provider may publish other models than before: the entries are needed as they came. */
  #relisted = false;
  /** The registry's tag, with which the isolate asks for differences. */
  #base = '';
  /** The last tag that changed what is shown. Loads are not shown. */
  #tag = '';
  #revision = 0;
  /** The registry's entries of sessions that this isolate suspects on its own. */
  readonly #suspicions = new Map<string, { entry: RegistryEntry; at: number }>();

  get tag(): string {
    return this.#revision === 0 ? this.#tag : `${this.#tag}.${this.#revision}`;
  }

  /** The tag to send with a question to the registry. */
  get base(): string | null {
    return this.#base || null;
  }

  model(id: string): ModelNodes | undefined {
    return this.nodes.model(id);
  }

  /** Work grows with what changed. */
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
    this.#base = this.#relisted && !delta.whole ? '' : delta.tag;
    this.#relisted = false;
    const shows = delta.whole || delta.entries.length > 0 || delta.removed.length > 0 || carried !== undefined;
    if (!shows && this.#tag !== '') return;
    this.#tag = delta.tag;
    this.#revision = 0;
  }

  /** A registry of an earlier version says less. */
  #settle(settings: GatewaySettings | undefined): void {
    if (settings === undefined) return;
    const before = publishLists(this.settings);
    this.settings = { ...NO_SETTINGS, ...settings };
    this.#relisted = publishLists(this.settings) !== before;
  }

  /** Without models whose names its provider was not given. */
  #publishable(entry: RegistryEntry): RegistryEntry {
    const given = ({ id }: { id: string }) => mayPublish(this.settings, entry.provider, id);
    return entry.models.every(given) ? entry : { ...entry, models: entry.models.filter(given) };
  }

  /** `gone`: the tunnel's object says that the session has left. The registry's entry of that is on its way. */
  suspect(session: string, now: number, gone: boolean): void {
    const entry = this.nodes.get(session);
    if (entry === undefined || (entry.suspected && !gone) || entry.state === 'LEFT') return;
    const before = this.#suspicions.get(session)?.entry ?? entry;
    this.#suspicions.delete(session); // they stand in the order of suspecting
    this.#suspicions.set(session, { entry: before, at: now });
    const news = gone ? ({ state: 'LEFT', connected: false } as const) : { suspected: true };
    this.nodes.put({ ...entry, ...news, updated_at: new Date(now).toISOString() });
    this.#revision++;
  }

  /** Takes back suspicions from before this time: the registry was asked since then and does not share them. */
  forgive(before: number): void {
    for (const [session, { entry, at }] of this.#suspicions) {
      if (at > before) return; // in the order of suspecting
      this.#suspicions.delete(session);
      this.nodes.put(entry);
      this.#revision++;
    }
  }
}

/**
 * The isolate's copy of the registry. Requests read it without waiting. While requests flow it is at most a second old. An isolate
 * without requests does not ask the registry.
 */
class SnapshotCache {
  readonly #view = new IsolateView();
  readonly #wait = new AdaptiveTimeout(REFRESH_WAIT);
  #checkedAt = Number.NEGATIVE_INFINITY;
  #refreshing: { done: Promise<void>; since: number; fresh: boolean } | undefined;
  /** Questions are numbered. An answer is dropped if the answer to a later question came first. */
  #asked = 0;
  #answered = 0;
  #location: string | undefined;

  /** Learns this isolate's location from the first request that knows it. Snapshots are asked of the location's relay, if there is one. */
  locate(request: HttpRequest): void {
    this.#location ??= coloOf(request.cf);
  }

  /**
   * The view for one request. `enough` says whether the view answers the request. If it does not (an unknown model, say), or if the
   * view is old, waits for one refresh, 300 ms or as long as the last ones took. All requests share the refresh.
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
    // A refresh of another request belongs to that request's context. If that request is ended, the refresh never settles.
    if (refreshed !== before?.done) ctx.waitUntil(refreshed);
    if (isRecent(STALE_MS, this.#checkedAt, now) && isEnough) return this.#view;
    return waitAtMost(refreshed, this.#wait.ms).then(() => this.#view);
  }

  /** The view as it is, without a refresh. */
  get view(): RegistrySnapshot {
    return this.#view;
  }

  /** This isolate found a session silent: the view says so at once, the registry's next word replaces it. */
  suspect(session: string, now: number, gone = false): void {
    this.#view.suspect(session, now, gone);
  }

  /** Asks unless the view is younger than `ms`. No request waits for the answer. */
  refreshOlder(env: Env, now: number, ms: number): void {
    if (!isRecent(ms, this.#checkedAt, now)) void this.#refresh(env, now, false);
  }

  #refresh(env: Env, now: number, fresh: boolean): Promise<void> {
    const current = this.#refreshing;
    // A refresh whose request was cancelled never settles; a new request starts another.
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
      const delta = await source(env, this.#location).snapshot(this.#view.base, fresh);
      this.#wait.answered(waitClock.now() - askedAt);
      if (number < this.#answered) return;
      this.#answered = number;
      if (delta !== null) this.#view.apply(delta);
      this.#view.forgive(now - OWN_SUSPICION_MS);
      this.#checkedAt = Date.now();
    } catch {
      // The registry is moving: the view stays, the next request asks again.
    }
  }
}

function source(env: Env, location: string | undefined): SnapshotSource {
  if (env.RELAY === undefined || !location) return env.REGISTRY.getByName(REGISTRY_OBJECT_NAME);
  return env.RELAY.getByName(location);
}

/** One per isolate. */
export const snapshotCache = new SnapshotCache();

function coloOf(cf: unknown): string {
  return typeof cf === 'object' && cf !== null && 'colo' in cf ? String(cf.colo ?? '') : '';
}

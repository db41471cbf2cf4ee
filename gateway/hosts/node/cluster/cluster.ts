/**
 * Several equal gateway processes on one database. An object is owned by one process; a tunnel belongs to the process
 * that has the agent's socket. Calls of objects elsewhere go over links. See docs/design/postgresql.md.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { MetricState } from '../../../../shared/metrics/metric-store.ts';
import { inBackground, neverRejects } from '../../../../shared/timing/in-background.ts';
import type { ProcessState } from '../../../env.ts';
import { OBSERVE_NAME } from '../../../observe/metrics-reporter.ts';
import type { OtherObserver } from '../../../observe/other-processes.ts';
import type { RequestTimeline } from '../../../observe/request-timeline.ts';
import { localTunnelOf, watchLocalTunnels } from '../../../tunnel/call/local-calls.ts';
import type { ObjectHost } from '../object-host.ts';
import { BrokenLinks } from './broken-links.ts';
import type { ClusterKey } from './cluster-key.ts';
import { LinkClient } from './link-client.ts';
import { type LinkCall, LinkError, MovedError } from './link-messages.ts';
import { LinkServer } from './link-server.ts';
import { slotOf } from './object-slots.ts';
import type { MembershipEvents, ProcessMembership } from './process-membership.ts';
import { OWNER_DEADLINE_MS, type ProcessIdentity, type ProcessRow } from './process-table.ts';
import { processesFor } from './processes-for-session.ts';
import type { TunnelReports } from './tunnel-reports.ts';

/** Maximum wait of a call for an owner of its object. */
const OWNER_WAIT_MS = 10_000;
const OWNER_POLL_MS = 50;
/** Pause before a link is opened again. */
const LINK_RETRY_MS = 500;

/** The class of tunnels. Its objects are wherever the agents' sockets are. */
const TUNNEL = 'TUNNEL';
/** The class of observe objects. Each process has its own. */
const OBSERVE = 'OBSERVE';
/** The class of limits objects. */
const LIMITS = 'LIMITS';

type CallableObjects = Pick<ObjectHost, 'call' | 'fetch' | 'addAlarms' | 'resetAll' | 'release'>;

export interface ClusterOptions extends TunnelReports {
  key: ClusterKey;
  membership(events: MembershipEvents): ProcessMembership;
  me: ProcessIdentity;
  /** Names the port that this process shares with others. Undefined: it has a port for itself. */
  sharedPort?: string | undefined;
  /** Reports what this process counted to its observe object. */
  report(): Promise<void>;
  /** Objects of this process, with their files. */
  local: ObjectHost;
  /** Objects that this process may own. */
  owned: CallableObjects;
  log(line: string): void;
}

/** A link, or the wait before it is opened again. */
interface Peer {
  link: LinkClient;
  /** True if the link was open once: then a refused connection proves that the process has ended. */
  wasOpen: boolean;
}

/** Ways to call an object. */
interface Ways<T> {
  here(): Promise<T>;
  /** Through the link to the owner. */
  there(link: LinkClient): Promise<T>;
  /** Through a process that passes the call on. `sure`: only to an owner that cannot have lost the object. */
  relayed?(link: LinkClient, sure: boolean): Promise<T>;
  /** True if the log does not stop a former owner of the object. */
  countsInMemory?: boolean;
}

export class Cluster {
  readonly #options: ClusterOptions;
  readonly #membership: ProcessMembership;
  readonly #server: LinkServer;
  readonly #tunnels: ReturnType<typeof watchLocalTunnels>;
  /** By incarnation; at most the processes that run. */
  readonly #peers = new Map<string, Peer>();
  readonly #broken: BrokenLinks;
  #others: readonly ProcessRow[] = [];
  #isClosed = false;

  constructor(options: ClusterOptions) {
    const { key, me, log, owned } = options;
    this.#options = options;
    this.#membership = options.membership({
      onProcesses: (others) => this.#onProcesses(others),
      onAlarms: (alarms) => owned.addAlarms(alarms),
      onLost: (slots) => owned.resetAll((object) => slots.has(slotOf(object)), new Error('another process owns it')),
      release: (slots) => owned.release((object) => slots.has(slotOf(object))),
      log,
    });
    this.#broken = new BrokenLinks((sessions) => this.#onLeft(sessions));
    this.#tunnels = watchLocalTunnels((session, isOpen) => {
      this.#server.tell(isOpen ? [session] : [], isOpen ? [] : [session]);
    });
    this.#server = new LinkServer({
      key,
      hello: me,
      tunnels: () => this.#tunnels.sessions(),
      call: (call) => this.#callHere(call),
      fetch: (className, name, request) => this.#fetchHere(className, name, request),
      log,
    });
  }

  /** Accepts links, joins the other processes and claims objects. @returns the port for links */
  async open(host: string, port: number): Promise<number> {
    return this.#server.listen(host, port);
  }

  join(): Promise<void> {
    return this.#membership.join();
  }

  #onLeft(sessions: readonly string[]): void {
    this.#options.onTunnelsClosed(sessions.filter((session) => !this.isConnected(session)));
  }

  /** True if the session's agent is connected to any process. */
  isConnected(session: string): boolean {
    return localTunnelOf(session) !== undefined || this.#linkWithTunnel(session) !== undefined;
  }

  isRunning(incarnation: string): boolean {
    return this.#membership.running.some((one) => one.incarnation === incarnation);
  }

  /** True if this process owns the object `CLASS/NAME`. False if it may have lost its objects without knowing it. */
  isOwner(key: string): boolean {
    return !this.#isInDoubt && this.#membership.owns(slotOf(key));
  }

  /** True if the other processes may have declared the end of this one, because it has not reached PostgreSQL. */
  get #isInDoubt(): boolean {
    return this.#membership.silentMs >= OWNER_DEADLINE_MS;
  }

  /** Number of processes that run, including this one. */
  get processes(): number {
    return this.#membership.running.length;
  }

  databaseSilentMs(): number {
    return this.#membership.silentMs;
  }

  state(): Omit<ProcessState, 'unstored'> {
    const { silentMs, size, owned } = this.#membership;
    return { databaseSilentMs: silentMs, processes: size, slots: owned };
  }

  /** URLs of the processes to which this session's agent should have sockets. */
  urlsFor(session: string): string[] {
    return processesFor(session, this.#membership.running).flatMap(({ url }) => url ?? []);
  }

  /** The observe objects of the other processes. `port`: those of processes at another port reject calls. */
  observers(of: 'all' | 'port'): OtherObserver[] {
    const { sharedPort } = this.#options;
    if (of === 'port' && sharedPort === undefined) return [];
    const name = of === 'port' ? `${sharedPort}` : '';
    return this.#others.map(({ incarnation, process }) => {
      const call = async (method: string, args: unknown[]): Promise<unknown> => {
        const link = this.#linkTo(incarnation);
        if (link === undefined) throw new LinkError('there is no link to the process');
        return link.call({ className: OBSERVE, name, method, args });
      };
      return {
        process,
        read: () => call('read', []) as Promise<MetricState>,
        stories: (...args) => call('stories', args) as Promise<RequestTimeline[]>,
      } satisfies OtherObserver;
    });
  }

  // --- calls of this process ---

  async call(className: string, name: string, method: string, args: unknown[]): Promise<unknown> {
    if (className === TUNNEL) {
      const link = this.#tunnelElsewhere(name);
      if (link === undefined) return this.#options.local.call(className, name, method, args);
      return link.call({ className, name, method, args });
    }
    const call = { className, name, method, args };
    return this.#atOwner(`${className}/${name}`, {
      here: () => this.#options.owned.call(className, name, method, args),
      there: (link) => link.call(call),
      relayed: (link, sure) => link.call({ ...call, relayed: true, sure }),
      countsInMemory: className === LIMITS,
    });
  }

  async fetch(className: string, name: string, request: Request): Promise<Response> {
    if (className === TUNNEL) {
      const link = request.headers.get('upgrade') === null ? this.#tunnelElsewhere(name) : undefined;
      return link === undefined
        ? this.#options.local.fetch(className, name, request)
        : link.fetch(className, name, request);
    }
    return this.#atOwner(`${className}/${name}`, {
      here: () => this.#options.owned.fetch(className, name, request),
      there: (link) => link.fetch(className, name, request.clone()),
    });
  }

  #tunnelElsewhere(session: string): LinkClient | undefined {
    return localTunnelOf(session) === undefined ? this.#linkWithTunnel(session) : undefined;
  }

  #linkWithTunnel(session: string): LinkClient | undefined {
    for (const { link } of this.#peers.values()) if (link.hasTunnel(session)) return link;
    return undefined;
  }

  /**
   * Calls an object at its owner. Waits for an owner for at most OWNER_WAIT_MS. If this process does not reach the
   * owner, another process passes the call on.
   */
  async #atOwner<T>(key: string, ways: Ways<T>): Promise<T> {
    const { here, there, relayed, countsInMemory = false } = ways;
    const slot = slotOf(key);
    const until = performance.now() + OWNER_WAIT_MS;
    for (;;) {
      await this.#membership.current();
      const inDoubt = countsInMemory && this.#isInDoubt;
      if (this.#membership.owns(slot) && !inDoubt) return here();
      const owner = this.#membership.ownerOf(slot);
      const link = this.#linkTo(owner);
      try {
        if (inDoubt && relayed !== undefined) {
          const others = this.#linksExcept(link);
          return await this.#callInDoubt(slot, link === undefined ? others : [link, ...others], here, relayed);
        }
        if (link !== undefined) return await there(link);
        const others = relayed === undefined || owner === undefined ? [] : this.#linksExcept(undefined);
        if (relayed !== undefined && others.length > 0) return await inTurn(others, (one) => relayed(one, true));
      } catch (error) {
        if (!(error instanceof MovedError)) throw error;
        neverRejects(this.#membership.now());
      }
      if (performance.now() > until) throw new Error(`no process owns ${key}`);
      await delay(OWNER_POLL_MS);
    }
  }

  /**
   * Calls a limits object while this process may have lost it. Limits count in memory, so the log does not stop a former
   * owner that still grants. Owners without doubt come first; if all links say that the owner is in doubt, it continues.
   */
  async #callInDoubt<T>(
    slot: number,
    links: readonly LinkClient[],
    here: () => Promise<T>,
    relayed: (link: LinkClient, sure: boolean) => Promise<T>,
  ): Promise<T> {
    if (links.length === 0) {
      // A process with proof of its end is no longer a peer.
      if (this.#others.some(({ incarnation }) => this.#peers.has(incarnation)))
        throw new Error('this process reaches neither PostgreSQL nor another process');
      return here();
    }
    try {
      return await inTurn(links, (link) => relayed(link, true));
    } catch (error) {
      if (!(error instanceof MovedError) || !error.inDoubt) throw error;
    }
    return this.#membership.owns(slot) ? here() : inTurn(links, (link) => relayed(link, false));
  }

  /** The open link to a process. */
  #linkTo(incarnation: string | undefined): LinkClient | undefined {
    const link = this.#peers.get(incarnation ?? '')?.link;
    return link?.isOpen === true ? link : undefined;
  }

  #linksExcept(known: LinkClient | undefined): LinkClient[] {
    return [...this.#peers.values()].map(({ link }) => link).filter((link) => link.isOpen && link !== known);
  }

  // --- calls of other processes ---

  /** Passes on only a call that says so: a call crosses at most two links. */
  async #callHere({ className, name, method, args, relayed, sure }: LinkCall): Promise<unknown> {
    if (className === TUNNEL) return this.#tunnelsHere(name).call(className, name, method, args);
    if (className === OBSERVE) {
      if (name !== '' && name !== this.#options.sharedPort) throw new MovedError('this process has another port');
      await this.#options.report();
      return this.#options.local.call(className, OBSERVE_NAME, method, args);
    }
    await this.#membership.current();
    const slot = slotOf(`${className}/${name}`);
    if (relayed === true && !this.#membership.owns(slot)) {
      const link = this.#linkTo(this.#membership.ownerOf(slot));
      if (link === undefined) throw new MovedError('this process does not reach the owner either');
      return link.call({ className, name, method, args, sure });
    }
    const owned = this.#ownedHere(className, name);
    if (sure === true && className === LIMITS && this.#isInDoubt)
      throw new MovedError('this process may have lost the object', { inDoubt: true });
    return owned.call(className, name, method, args);
  }

  async #fetchHere(className: string, name: string, request: Request): Promise<Response> {
    if (className === TUNNEL) return this.#tunnelsHere(name).fetch(className, name, request);
    await this.#membership.current();
    return this.#ownedHere(className, name).fetch(className, name, request);
  }

  /** Tunnels are not owned, so their requests do not wait for PostgreSQL. @throws MovedError */
  #tunnelsHere(session: string): Pick<CallableObjects, 'call' | 'fetch'> {
    if (localTunnelOf(session) === undefined) throw new MovedError('the agent is not connected here');
    return this.#options.local;
  }

  /** @throws MovedError */
  #ownedHere(className: string, name: string): Pick<CallableObjects, 'call' | 'fetch'> {
    if (!this.#membership.owns(slotOf(`${className}/${name}`))) throw new MovedError('not the owner');
    return this.#options.owned;
  }

  // --- other processes ---

  #onProcesses(others: readonly ProcessRow[]): void {
    this.#others = others;
    const running = new Set(others.map(({ incarnation }) => incarnation));
    for (const [incarnation, { link }] of this.#peers) if (!running.has(incarnation)) this.#end(incarnation, link);
    for (const process of others) if (!this.#peers.has(process.incarnation)) this.#connect(process, false);
  }

  /** A process is no longer there. */
  #end(incarnation: string, link: LinkClient): void {
    link.close();
    this.#broken.end(incarnation);
  }

  #connect(process: ProcessRow, wasOpen: boolean): void {
    if (this.#isClosed) return;
    const { key, me, onTunnelsOpen } = this.#options;
    const { incarnation, address } = process;
    const peer: Peer = {
      wasOpen,
      link: new LinkClient({
        key,
        address,
        incarnation,
        hello: me,
        opened: () => {
          peer.wasOpen = true;
        },
        closed: (ended, sessions) => {
          this.#broken.add(incarnation, sessions);
          this.#onLinkClosed(process, peer, ended);
        },
        listed: (sessions) => onTunnelsOpen(sessions),
        left: (sessions) => this.#onLeft(sessions),
      }),
    };
    this.#peers.set(incarnation, peer);
  }

  #onLinkClosed(process: ProcessRow, peer: Peer, ended: boolean): void {
    const { incarnation } = process;
    const { log } = this.#options;
    if (ended && peer.wasOpen) {
      this.#peers.delete(incarnation);
      this.#broken.end(incarnation);
      return inBackground(`the end of ${incarnation}`, this.#membership.prove(incarnation), log);
    }
    const again = setTimeout(() => {
      this.#peers.delete(incarnation);
      if (this.#others.some((one) => one.incarnation === incarnation)) this.#connect(process, peer.wasOpen);
    }, LINK_RETRY_MS);
    again.unref();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#tunnels.stop();
    await this.#membership.close();
    this.#server.close();
    for (const { link } of this.#peers.values()) link.close();
    this.#broken.stop();
  }
}

/**
 * Asks one link after another, until one does not say that the object has moved.
 * @throws MovedError, as a rejection; it is in doubt if all links said so
 */
async function inTurn<T>(links: readonly LinkClient[], ask: (link: LinkClient) => Promise<T>): Promise<T> {
  let inDoubt = true;
  for (const link of links) {
    try {
      return await ask(link);
    } catch (error) {
      if (!(error instanceof MovedError)) throw error;
      inDoubt &&= error.inDoubt;
    }
  }
  throw new MovedError('no process reaches the owner', { inDoubt });
}

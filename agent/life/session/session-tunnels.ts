/** All tunnels of one session, as one object. */
import type { ProbeVerdict } from '../../../shared/wire/frames.ts';
import type { CallerAccount } from '../../attempts/caller-account.ts';
import type { AttemptGiver } from '../../attempts/engine-attempts.ts';
import type { OrderOutcome } from '../../deploy/deployment-decider.ts';
import type { MeshGateway } from '../../mesh/gateway-gossip-sockets.ts';
import { GATEWAYS_MAX, type OtherGateway } from '../../tunnel/gateway-admission.ts';
import type { Tunnel, TunnelOptions, TunnelRefusal, UsageSenderListener } from '../../tunnel/tunnel-types.ts';
import { collapseRepeats } from '../collapse-repeats.ts';
import { Deferred, settlesWithin } from '../settles-within.ts';

export interface GatewayStatus {
  url: string;
  connected: boolean;
  in_flight: number;
  refused?: string;
}

export interface SessionTunnelsOptions {
  named: readonly OtherGateway[];
  /** The gateways that the operator configured. Their answers name further gateways. */
  configured: readonly URL[];
  /**
   * The gossip id of the gateway that admitted the session. Only this gateway evicts the session, so its report ends
   * the session without other gateways' reports.
   */
  admittedBy: string;
  openTunnel(options: TunnelOptions): Tunnel;
  /** Options that all tunnels share. */
  shared: Omit<
    TunnelOptions,
    | 'gateway'
    | 'log'
    | 'siblings'
    | 'account'
    | 'onRefused'
    | 'onOver'
    | 'onRecorded'
    | 'onConnected'
    | 'onDisconnected'
  >;
  /** Returns the account of an institution's gateways; undefined: this agent's institution. */
  accountOf?: ((peer: () => string | undefined) => CallerAccount) | undefined;
  log(line: string): void;
  /** Called if every gateway refuses this agent. */
  onAllRefused(refusal: TunnelRefusal): void;
  /**
   * Called if the session has ended, according to the gateway that admitted it or to all gateways that can be asked.
   */
  onOver(why: string): void;
  /** Called each time another gateway has admitted the session, with all gateways that have admitted it. */
  onKnown(gateways: MeshGateway[]): void;
}

const NOT_FOR_PEERS: OrderOutcome = {
  answer: {
    kind: 'refused',
    code: 'cannot_start',
    message: 'this agent shows its templates only to its own institution',
  },
};

/** Maximum wait for gateways that do not answer the close. */
const CLOSE_WAIT_MS = 1000;

interface Member {
  url: URL;
  tunnel: Tunnel;
  /** True if another gateway named this gateway; false if it is configured. */
  learned: boolean;
  /**
   * True if this gateway belongs to the agent's institution. The report of another institution's gateway does not end a
   * session.
   */
  own: boolean;
  /** Name of the peer institution to which this gateway belongs, if this agent's institution reported it. */
  peer?: string | undefined;
  refusal?: TunnelRefusal;
  /** The gateway's gossip id. Absent: it has not admitted the session yet. */
  id?: string;
  /** Why the session has ended according to this gateway. */
  over?: string;
}

export class SessionTunnels {
  readonly #members: Member[] = [];
  readonly #options: SessionTunnelsOptions;
  readonly #stored = new Deferred<void>();
  #closed = false;

  constructor(options: SessionTunnelsOptions) {
    this.#options = options;
    const configured = new Set(options.configured.map(({ href }) => href));
    for (const one of options.named) this.#members.push(this.#member(one, !configured.has(one.url.href)));
  }

  #member({ url, own, peer }: OtherGateway, learned: boolean): Member {
    const { openTunnel, shared, accountOf, log: write } = this.#options;
    const log = collapseRepeats(write);
    const { order, usage } = shared;
    const member: Member = {
      url,
      learned,
      own: own || !learned,
      peer,
      tunnel: openTunnel({
        ...shared,
        // A signed order is valid regardless of its sender. An empty order, which asks for the templates, has no
        // signature, and is accepted only from the institution's own gateways.
        ...(order === undefined
          ? {}
          : { order: async (bytes) => (bytes.length === 0 && !member.own ? NOT_FOR_PEERS : order(bytes)) }),
        ...(usage === undefined ? {} : { usage: ofOwn(usage, () => member.own) }),
        account: accountOf?.(() => (member.own ? undefined : member.peer)),
        gateway: url,
        siblings: () => this.#siblingsOf(member),
        log,
        onRefused: (refusal) => this.#refused(url, refusal),
        onOver: (why) => this.#sessionOver(url, why),
        onRecorded: () => this.#stored.settle(),
        onConnected: (id) => {
          log(`gateway ${url.host}: connected`);
          this.#meet(url, id);
        },
        onDisconnected: () => {
          if (this.#closed) return;
          log(`gateway ${url.host}: connection lost, reconnecting`);
          this.#judge();
        },
      }),
    };
    return member;
  }

  /** Attempts that a gateway may claim, although another one opened them. A peer institution's gateway claims none. */
  #siblingsOf(member: Member): AttemptGiver[] {
    if (!member.own) return [];
    return this.#members.filter((one) => one !== member && one.own).map(({ tunnel }) => tunnel.attempts);
  }

  /**
   * Updates the gateways to those that a connected gateway named. Connects to new ones. Drops a learned gateway if it
   * is no longer named and has no running request.
   */
  learn(gateways: readonly OtherGateway[]): void {
    if (this.#closed) return;
    const named = new Map(gateways.map((one) => [one.url.href, one]));
    for (const member of this.#members) {
      const one = named.get(member.url.href);
      member.own = !member.learned || (one?.own ?? false);
      member.peer = one?.peer ?? member.peer;
    }
    const known = new Set(this.#members.map(({ url }) => url.href));
    for (const one of gateways) {
      if (known.has(one.url.href) || this.#members.length >= GATEWAYS_MAX) continue;
      this.#options.log(`gateway ${one.url.host}: discovered`);
      const member = this.#member(one, true);
      this.#members.push(member);
      member.tunnel.open();
    }
    for (const member of this.#members.filter(
      ({ learned, url, tunnel }) => learned && !named.has(url.href) && tunnel.inFlight === 0,
    )) {
      this.#members.splice(this.#members.indexOf(member), 1);
      this.#options.log(`gateway ${member.url.host}: removed, because it is no longer listed`);
      member.tunnel.close().catch(() => {});
      if (member.id !== undefined) this.#options.onKnown(this.known);
    }
  }

  /** Connected gateways, in the order of the configuration. */
  get connected(): OtherGateway[] {
    return this.#members
      .filter(({ tunnel, refusal }) => tunnel.connected && !refusal)
      .map(({ url, own }) => ({ url, own }));
  }

  /**
   * The institution's gateways that are connected. If no gateway is connected, the institution's gateways that do not
   * refuse, because an engine may end before the first tunnel is open. Never a peer institution's gateway, because logs
   * may contain prompts.
   */
  get reachable(): URL[] {
    const own = this.#members.filter((member) => member.own && !member.refusal);
    const connected = own.filter(({ tunnel }) => tunnel.connected);
    return (connected.length > 0 ? connected : own).map(({ url }) => url);
  }

  open(): void {
    for (const { tunnel } of this.#members) tunnel.open();
  }

  status(): GatewayStatus[] {
    return this.#members.map(({ url, tunnel, refusal }) => ({
      url: url.href,
      connected: tunnel.connected,
      in_flight: tunnel.inFlight,
      ...(refusal ? { refused: `${refusal.status} ${refusal.message}` } : {}),
    }));
  }

  get inFlight(): number {
    return this.#members.reduce((sum, { tunnel }) => sum + tunnel.inFlight, 0);
  }

  /** Resolves when a gateway has stored the session's record. */
  get stored(): Promise<void> {
    return this.#stored.promise;
  }

  /** Gateways that have admitted the session, connected or not. */
  get known(): MeshGateway[] {
    return this.#members.flatMap(({ url, id }) => (id === undefined ? [] : [{ id, url }]));
  }

  #meet(url: URL, id: string): void {
    const member = this.#members.find((one) => one.url === url);
    if (member === undefined) return;
    delete member.refusal;
    if (member.id === id) return;
    member.id = id;
    this.#options.onKnown(this.known);
  }

  /**
   * Asks the gateways whether another session is alive. If one gateway reports it alive, the verdict is `alive`.
   * Gateways that answer `unknown` are ignored.
   */
  async probe(session: string): Promise<ProbeVerdict> {
    const asked = this.#members.filter(({ tunnel }) => tunnel.connected);
    const verdicts = await Promise.all(asked.map(({ tunnel }) => tunnel.probe(session)));
    if (verdicts.includes('alive')) return 'alive';
    return verdicts.includes('silent') ? 'silent' : 'unknown';
  }

  /**
   * Sends the record to all gateways. Resolves when all of them have it, so the caller must limit the wait. Never
   * rejects.
   */
  publish(): Promise<void> {
    return this.#all((tunnel) => tunnel.publish());
  }

  /** Resolves when no tunnel has a running request. Never rejects. */
  async drain(): Promise<void> {
    await this.#all((tunnel) => tunnel.drain());
  }

  /** Ends running attempts. */
  giveUp(): void {
    for (const { tunnel } of this.#members) tunnel.giveUp();
  }

  /** Also closes tunnels of gateways that refuse, because their requests may still run here. */
  async close(): Promise<void> {
    this.#closed = true;
    await settlesWithin(
      CLOSE_WAIT_MS,
      this.#each(this.#members, (tunnel) => tunnel.close()),
    );
  }

  #all(act: (tunnel: Tunnel) => Promise<void>): Promise<void> {
    const live = this.#members.filter(({ refusal, over }) => !refusal && over === undefined);
    return this.#each(live, act);
  }

  async #each(members: readonly Member[], act: (tunnel: Tunnel) => Promise<void>): Promise<void> {
    const results = await Promise.allSettled(members.map(({ tunnel }) => act(tunnel)));
    for (const result of results) {
      if (result.status === 'rejected') this.#options.log(`tunnel: ${String(result.reason)}`);
    }
  }

  #refused(url: URL, refusal: TunnelRefusal): void {
    this.#options.log(`gateway ${url.host} refuses this agent: ${refusal.status} ${refusal.message}`);
    const member = this.#members.find((one) => one.url === url);
    if (member) member.refusal = refusal;
    if (this.#members.every((one) => one.refusal)) this.#options.onAllRefused(refusal);
    else this.#judge();
  }

  #sessionOver(url: URL, why: string): void {
    this.#options.log(`gateway ${url.host}: the session has ended: ${why}`);
    const member = this.#members.find((one) => one.url === url);
    if (member) member.over = why;
    // Checks `own`, because a peer institution's gateway may claim any id.
    if (member?.own && member.id === this.#options.admittedBy) this.#options.onOver(why);
    else this.#judge();
  }

  /**
   * The report of a gateway that did not admit the session ends the session only if no other gateway of the institution
   * serves it. A peer institution's report never ends it: otherwise that gateway could force a new admission at any
   * time.
   */
  #judge(): void {
    const own = this.#members.filter((one) => one.own);
    const over = own.find((one) => one.over !== undefined)?.over;
    const served = own.some((one) => one.tunnel.connected && one.over === undefined && !one.refusal);
    if (over !== undefined && !served) this.#options.onOver(over);
  }
}

/** Delivers usage only to gateways of the agent's institution. A peer institution's gateway must not acknowledge it. */
function ofOwn(usage: UsageSenderListener, own: () => boolean): UsageSenderListener {
  return {
    connected: (sender) => {
      if (own()) usage.connected(sender);
    },
    disconnected: (sender) => usage.disconnected(sender),
    stored: (sender, sequence) => usage.stored(sender, sequence),
  };
}

/** All tunnels of one agent as one thing. */
import type { ProbeVerdict } from '../../../shared/wire/frames.ts';
import type { OrderOutcome } from '../../deploy/deployments.ts';
import type { MeshGateway } from '../../mesh/delegates.ts';
import { GATEWAYS_MAX, type OtherGateway } from '../../tunnel/admission.ts';
import type { Tunnel, TunnelOptions, TunnelRefusal } from '../../tunnel/types.ts';
import { collapseRepeats } from '../collapse-repeats.ts';
import { Deferred, settlesWithin } from '../deferred.ts';

export interface GatewayStatus {
  url: string;
  connected: boolean;
  in_flight: number;
  refused?: string;
}

interface GatewaysOptions {
  named: readonly OtherGateway[];
  /** Those among them that the operator named: the others were learned of. */
  configured: readonly URL[];
  /** The gateway that admitted the session, as a gossip peer: it alone evicts it, so its word is enough. */
  admittedBy: string;
  openTunnel(options: TunnelOptions): Tunnel;
  /** What every tunnel shares. */
  shared: Omit<
    TunnelOptions,
    'gateway' | 'log' | 'onRefused' | 'onOver' | 'onRecorded' | 'onConnected' | 'onDisconnected'
  >;
  log(line: string): void;
  /** No gateway will have this agent. */
  onAllRefused(refusal: TunnelRefusal): void;
  /** The session has ended, say all gateways that can be asked. */
  onOver(why: string): void;
  /** Another gateway has taken the session in: all that have, by their names as gossip peers. */
  onKnown(gateways: MeshGateway[]): void;
}

const NOT_FOR_PEERS: OrderOutcome = {
  answer: {
    kind: 'refused',
    code: 'cannot_start',
    message: 'this agent tells its own institution alone what it would start',
  },
};

/** Closing says good-bye; a peer that does not answer is left. */
const CLOSE_WAIT_MS = 1000;

interface Member {
  url: URL;
  tunnel: Tunnel;
  /** By another gateway's word, not the configuration's. */
  learned: boolean;
  /** Of the agent's own institution. Not so: its word ends no session. */
  own: boolean;
  refusal?: TunnelRefusal;
  /** As a gossip peer, once it has taken the session in. */
  id?: string;
  /** Why the session has ended, by this gateway's word. */
  over?: string;
}

export class Gateways {
  readonly #members: Member[] = [];
  readonly #options: GatewaysOptions;
  readonly #stored = new Deferred<void>();
  #closed = false;

  constructor(options: GatewaysOptions) {
    this.#options = options;
    const configured = new Set(options.configured.map(({ href }) => href));
    for (const one of options.named) this.#members.push(this.#member(one, !configured.has(one.url.href)));
  }

  #member({ url, own }: OtherGateway, learned: boolean): Member {
    const { openTunnel, shared, log: write } = this.#options;
    const log = collapseRepeats(write);
    const { order } = shared;
    const member: Member = {
      url,
      learned,
      own: own || !learned,
      tunnel: openTunnel({
        ...shared,
        // A signed order proves itself, whoever carries it. An empty one asks for the operator's templates, and proves nothing.
        ...(order === undefined
          ? {}
          : { order: async (bytes) => (bytes.length === 0 && !member.own ? NOT_FOR_PEERS : order(bytes)) }),
        gateway: url,
        log,
        onRefused: (refusal) => this.#refused(url, refusal),
        onOver: (why) => this.#over(url, why),
        onRecorded: () => this.#stored.settle(),
        onConnected: (id) => {
          log(`gateway ${url.host}: connected`);
          this.#meet(url, id);
        },
        onDisconnected: () => {
          if (this.#closed) return;
          log(`gateway ${url.host}: connection lost, trying again`);
          this.#judge();
        },
      }),
    };
    return member;
  }

  /**
   * Which gateways there are beside those of the configuration, by the word of one that is connected. New ones are connected to; those
   * that were learned so, are no longer named, and have nothing running are left.
   */
  learn(gateways: readonly OtherGateway[]): void {
    if (this.#closed) return;
    const named = new Map(gateways.map((one) => [one.url.href, one]));
    for (const member of this.#members) member.own = !member.learned || (named.get(member.url.href)?.own ?? false);
    const known = new Set(this.#members.map(({ url }) => url.href));
    for (const one of gateways) {
      if (known.has(one.url.href) || this.#members.length >= GATEWAYS_MAX) continue;
      this.#options.log(`gateway ${one.url.host}: learned of it`);
      const member = this.#member(one, true);
      this.#members.push(member);
      member.tunnel.open();
    }
    for (const member of this.#members.filter(
      ({ learned, url, tunnel }) => learned && !named.has(url.href) && tunnel.inFlight === 0,
    )) {
      this.#members.splice(this.#members.indexOf(member), 1);
      this.#options.log(`gateway ${member.url.host}: it is no longer named`);
      void member.tunnel.close().catch(() => {});
      if (member.id !== undefined) this.#options.onKnown(this.known);
    }
  }

  /** Those that can be asked, in the order of the configuration. */
  get connected(): OtherGateway[] {
    return this.#members
      .filter(({ tunnel, refusal }) => tunnel.connected && !refusal)
      .map(({ url, own }) => ({ url, own }));
  }

  /**
   * The institution's own that are connected. Where none is: all of its own that do not refuse, since an engine may end before the
   * first tunnel stands. What goes to them may hold prompts, so a peer's gateway is none of them.
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

  /** Resolves when a gateway has the session's record. */
  get stored(): Promise<void> {
    return this.#stored.promise;
  }

  /** Those that have taken the session in, whether they can be reached now or not. */
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

  /** Whether another session is alive. One gateway that hears it is enough; one that knows nothing says nothing. */
  async probe(session: string): Promise<ProbeVerdict> {
    const asked = this.#members.filter(({ tunnel }) => tunnel.connected);
    const verdicts = await Promise.all(asked.map(({ tunnel }) => tunnel.probe(session)));
    if (verdicts.includes('alive')) return 'alive';
    return verdicts.includes('silent') ? 'silent' : 'unknown';
  }

  /** Sends the record to all; resolves when all have it, so bound the wait. Never rejects. */
  publish(): Promise<void> {
    return this.#all((tunnel) => tunnel.publish());
  }

  /** Resolves when no tunnel has anything in flight. Never rejects. */
  async drain(): Promise<void> {
    await this.#all((tunnel) => tunnel.drain());
  }

  /** Breaks off what runs. */
  giveUp(): void {
    for (const { tunnel } of this.#members) tunnel.giveUp();
  }

  /** Those that refuse included: requests of theirs may still run here. */
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

  #over(url: URL, why: string): void {
    this.#options.log(`gateway ${url.host}: the session has ended: ${why}`);
    const member = this.#members.find((one) => one.url === url);
    if (member) member.over = why;
    // A peer's gateway may call itself by any name.
    if (member?.own && member.id === this.#options.admittedBy) this.#options.onOver(why);
    else this.#judge();
  }

  /**
   * The word of a gateway that did not admit the session ends it only if no other gateway of the institution serves it. The word of
   * a peer's gateway ends nothing: a new session would ask for admission again, as often as the peer likes.
   */
  #judge(): void {
    const own = this.#members.filter((one) => one.own);
    const over = own.find((one) => one.over !== undefined)?.over;
    const served = own.some((one) => one.tunnel.connected && one.over === undefined && !one.refusal);
    if (over !== undefined && !served) this.#options.onOver(over);
  }
}

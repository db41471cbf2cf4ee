/** One session of this agent: its ticket, its record, and the tunnels that carry its name. It only ever moves on; what comes after it is another session. */
import { tunedOptions } from '../../../shared/gossip/index.ts';
import { encodePayload } from '../../../shared/lattice/payload.ts';
import { signRecord } from '../../../shared/lattice/record.ts';
import type { Ticket } from '../../../shared/lattice/ticket.ts';
import { type EntryUpdate, encodeUpdate } from '../../../shared/lattice/update.ts';
import type { EngineTarget } from '../../engine/address.ts';
import { nodeCrypto } from '../../host/crypto.ts';
import type { SessionKey } from '../../mesh/channel/session-key.ts';
import type { Mesh } from '../../mesh/mesh.ts';
import type { NodeSeals } from '../../seal/node-seals.ts';
import type { OtherGateway } from '../../tunnel/admission.ts';
import { sessionIdentityOf } from '../../tunnel/identity.ts';
import type { LogTailOptions } from '../../tunnel/log-tail.ts';
import type { GatewayHints } from '../../tunnel/other-gateways.ts';
import type { Tunnel, TunnelOptions, TunnelRefusal } from '../../tunnel/types.ts';
import { settlesWithin } from '../deferred.ts';
import type { MeshMember } from '../mesh-membership.ts';
import { type GatewayStatus, Gateways } from './gateways.ts';
import { payloadOf, type RecordChange, RecordKeeper, type SessionRecord } from './record.ts';

interface SessionOptions {
  ticket: Ticket;
  key: SessionKey;
  gateways: readonly OtherGateway[];
  /** Those among them that the operator named. */
  configured: readonly URL[];
  /** Asks a gateway which others there are, and how often to probe; undefined: it does not say. */
  askGateway?: ((gateway: URL) => Promise<GatewayHints | undefined>) | undefined;
  /** As it joins. */
  first: SessionRecord;
  openTunnel(options: TunnelOptions): Tunnel;
  /** This session among the other agents; undefined where there are none to be: a test. */
  join?: ((member: MeshMember) => Promise<Mesh>) | undefined;
  /** It stands among them. */
  onMesh?(mesh: Mesh): void;
  proxy: TunnelOptions['proxy'];
  /** What this agent's own ingress used goes to gateways by the tunnels. */
  usage?: TunnelOptions['usage'] | undefined;
  /** Answers orders of gateways. */
  order?: TunnelOptions['order'] | undefined;
  leaveLogTail(asked: Pick<LogTailOptions, 'gateways' | 'ticket' | 'key' | 'tail' | 'signal'>): Promise<void>;
  engine(): EngineTarget | undefined;
  load?: TunnelOptions['load'];
  /** The keys that clients seal to; absent: nothing sealed is opened. */
  seals?: NodeSeals | undefined;
  log(line: string): void;
  /** No gateway will have this agent. */
  onRefused(refusal: TunnelRefusal): void;
  /** This session has ended: evicted, or its ticket counts no more. */
  onOver(why: string): void;
}

/** LEFT is acknowledged within a round trip; a gateway that is away does not hold up the end of a job. */
const LEFT_WAIT_MS = 2000;
/** For the word before it, which says why. Less than an agent that is forced to end has for all of its shutdown. */
const DOWN_WAIT_MS = 200;
/** How often it is looked whether the next encryption key is due. */
const SEAL_LOOK_MS = 60_000;
/** Gateways come and go seldom; a thousand agents ask. */
const LOOK_FOR_GATEWAYS_MS = 30_000;

export class Session {
  readonly ticket: Ticket;
  readonly key: SessionKey;
  readonly #keeper: RecordKeeper;
  readonly #gateways: Gateways;
  #signed: { record: SessionRecord; update: EntryUpdate } | undefined;
  readonly #options: SessionOptions;
  #mesh: Mesh | undefined;
  #left: Promise<boolean> | undefined;
  #sealing: NodeJS.Timeout | undefined;
  #looking: NodeJS.Timeout | undefined;

  constructor(options: SessionOptions) {
    const {
      ticket,
      key,
      gateways,
      first,
      openTunnel,
      proxy,
      usage,
      order,
      engine,
      load,
      seals,
      log,
      onRefused,
      onOver,
    } = options;
    this.#options = options;
    this.ticket = ticket;
    this.key = key;
    this.#keeper = new RecordKeeper({ ...first, ...seals?.word(ticket) }, () => this.#announce(), log);
    this.#gateways = new Gateways({
      named: gateways,
      configured: options.configured,
      admittedBy: `gw:${ticket.keyName}`,
      openTunnel,
      shared: {
        ticket: ticket.bytes,
        identity: sessionIdentityOf(ticket, key),
        update: () => encodeUpdate(this.#update()),
        engine,
        load,
        seals: seals?.opener,
        proxy,
        circuit: (gateway, name) => this.#mesh?.circuits.answer(gateway, name),
        ...(usage === undefined ? {} : { usage }),
        ...(order === undefined ? {} : { order }),
      },
      log,
      onAllRefused: onRefused,
      onOver,
      onKnown: (known) => this.#mesh?.setGateways(known),
    });
  }

  get id(): string {
    return this.ticket.session;
  }

  get record(): SessionRecord {
    return this.#keeper.record;
  }

  get inFlight(): number {
    return this.#gateways.inFlight;
  }

  /** Gateways that this session has a tunnel to now. */
  get connected(): OtherGateway[] {
    return this.#gateways.connected;
  }

  gatewayStatus(): GatewayStatus[] {
    return this.#gateways.status();
  }

  open(): void {
    this.#gateways.open();
    const { seals } = this.#options;
    if (seals !== undefined)
      this.#sealing = setInterval(() => this.change(seals.word(this.ticket)), SEAL_LOOK_MS).unref();
    this.#lookForGateways();
    void this.#join();
  }

  #lookForGateways(): void {
    const { askGateway } = this.#options;
    if (askGateway === undefined) return;
    const soon = LOOK_FOR_GATEWAYS_MS * (0.75 + Math.random() / 2);
    this.#looking = setTimeout(async () => {
      await this.#hear(askGateway);
      if (this.#left === undefined) this.#lookForGateways();
    }, soon);
    this.#looking.unref();
  }

  /** Of those connected, the first that has a say. A peer's gateway has none, and is not asked: it could name itself our own. */
  async #hear(askGateway: (gateway: URL) => Promise<GatewayHints | undefined>): Promise<void> {
    for (const { url: gateway, own } of this.connected) {
      if (!own) continue;
      const word = await askGateway(gateway);
      if (this.#left !== undefined) return;
      if (word === undefined) continue;
      // The gateway that was asked does not name itself.
      this.#gateways.learn([{ url: gateway, own: true }, ...word.gateways]);
      this.#mesh?.tune(tunedOptions(word.membership));
      return;
    }
  }

  /** Among the other agents; a node that cannot listen is still served by its gateways. */
  async #join(): Promise<void> {
    const { join, onMesh, onOver, log } = this.#options;
    try {
      const mesh = await join?.({
        ticket: this.ticket,
        key: this.key,
        probe: (session) => this.#gateways.probe(session),
        onEnded: (reason) => onOver(reason),
      });
      if (mesh === undefined) return;
      if (this.#left !== undefined) return mesh.close();
      this.#mesh = mesh;
      mesh.setGateways(this.#gateways.known);
      onMesh?.(mesh);
      this.#keeper.change({ addresses: mesh.addresses });
      mesh.publish(this.#update());
    } catch (error) {
      log(`warning: no other agent reaches this one: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  #announce(): Promise<void> {
    this.#mesh?.publish(this.#update());
    return this.#gateways.publish();
  }

  /** Other agents that this session has a channel to. */
  get peers(): number {
    return this.#mesh?.channels.size ?? 0;
  }

  get mesh(): Mesh | undefined {
    return this.#mesh;
  }

  /** Resolves when a gateway has this session's record for the first time, which is when it can be routed to. */
  get stored(): Promise<void> {
    return this.#gateways.stored;
  }

  change(change: RecordChange): void {
    this.#keeper.change(change);
  }

  /** The newest record, signed once however many are told; with all that a stranger needs to believe it. */
  #update(): EntryUpdate {
    const { record } = this.#keeper;
    if (this.#signed?.record === record) return this.#signed.update;
    const payload = encodePayload(payloadOf(record));
    const { state, version } = record;
    const update: EntryUpdate = {
      kind: 'entry',
      ticket: this.ticket.bytes,
      record: signRecord({ session: this.id, state, version, payload }, this.key, nodeCrypto),
      ...(state === 'LEFT' ? {} : { payload }),
    };
    this.#signed = { record, update };
    return update;
  }

  /** The record that it has LEFT, for gateways to be told should this agent be killed. LEFT follows any state, whatever their versions. */
  will(): Uint8Array {
    const payload = encodePayload(payloadOf(this.record));
    return signRecord({ session: this.id, state: 'LEFT', version: 0, payload }, this.key, nodeCrypto);
  }

  /** Last words of engine and agent, which explain the node's end. */
  leaveLogTail(tail: Uint8Array, signal: AbortSignal): Promise<void> {
    const { ticket, key } = this;
    return this.#options.leaveLogTail({ gateways: this.#gateways.reachable, ticket, key, tail, signal });
  }

  /** New openings are refused; resolves when nothing runs any more. */
  drain(): Promise<void> {
    return this.#gateways.drain();
  }

  /** Requests that the engine will never answer go back to the gateways, for other nodes. */
  giveUp(): void {
    void this.#gateways.drain();
    this.#gateways.giveUp();
  }

  /** LEFT, acknowledged or 2 s later, and the sockets closed. Resolves with whether all gateways have it. Idempotent; never rejects. */
  leave(): Promise<boolean> {
    this.#left ??= (async () => {
      // LEFT says no more than that: why is in the word before it.
      await settlesWithin(DOWN_WAIT_MS, this.#keeper.announced);
      this.#keeper.change({ state: 'LEFT' });
      const told = await settlesWithin(LEFT_WAIT_MS, this.#keeper.announced);
      await this.#close();
      return told;
    })();
    return this.#left;
  }

  /** Without a word: no gateway listens any more. */
  async close(): Promise<void> {
    this.#left ??= this.#close().then(() => true);
    await this.#left;
  }

  async #close(): Promise<void> {
    clearInterval(this.#sealing);
    clearTimeout(this.#looking);
    this.#mesh?.close();
    await this.#gateways.close();
  }
}

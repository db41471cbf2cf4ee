/**
 * One session of this agent: its ticket, its record, and its tunnels. Its state only moves forward. After its end the
 * agent creates another session.
 */

import { tunedOptions } from '../../../shared/gossip/index.ts';
import { encodePayload } from '../../../shared/lattice/node-payload.ts';
import { type EntryUpdate, encodeUpdate } from '../../../shared/lattice/registry-update.ts';
import { signRecord } from '../../../shared/lattice/signed-record.ts';
import type { Ticket } from '../../../shared/lattice/ticket.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import type { EngineTarget } from '../../engine/engine-address.ts';
import { nodeCrypto } from '../../host/node-crypto.ts';
import type { SessionKey } from '../../mesh/channel/session-key.ts';
import type { Mesh } from '../../mesh/mesh.ts';
import type { AgentSealing } from '../../seal/agent-sealing.ts';
import type { OtherGateway } from '../../tunnel/gateway-admission.ts';
import type { GatewayHints } from '../../tunnel/other-gateways.ts';
import type { LogTailOptions } from '../../tunnel/send-log-tail.ts';
import { sessionIdentityOf } from '../../tunnel/session-identity.ts';
import type { Tunnel, TunnelOptions, TunnelRefusal } from '../../tunnel/tunnel-types.ts';
import type { MeshMember } from '../mesh-membership.ts';
import { settlesWithin } from '../settles-within.ts';
import { payloadOf, type RecordChange, RecordKeeper, type SessionRecord } from './session-record.ts';
import { type GatewayStatus, SessionTunnels, type SessionTunnelsOptions } from './session-tunnels.ts';

interface SessionOptions {
  ticket: Ticket;
  key: SessionKey;
  gateways: readonly OtherGateway[];
  /** The gateways that the operator configured. */
  configured: readonly URL[];
  /** Asks a gateway for the other gateways and the probe settings. Undefined if the gateway does not report them. */
  askGateway?: ((gateway: URL) => Promise<GatewayHints | undefined>) | undefined;
  /** The session's record when it joins. */
  first: SessionRecord;
  openTunnel(options: TunnelOptions): Tunnel;
  /** Joins the mesh. Absent: there are no other agents, as in a test. */
  join?: ((member: MeshMember) => Promise<Mesh>) | undefined;
  /** Called when the session has joined the mesh. */
  onMesh?(mesh: Mesh): void;
  proxy: TunnelOptions['proxy'];
  /** Usage records that this agent made. The tunnels send them to the institution's gateways. */
  usage?: TunnelOptions['usage'] | undefined;
  /** Returns the account of an institution's gateways. */
  accountOf?: SessionTunnelsOptions['accountOf'];
  /** Answers an order of a gateway. */
  order?: TunnelOptions['order'] | undefined;
  leaveLogTail(asked: Pick<LogTailOptions, 'gateways' | 'ticket' | 'key' | 'tail' | 'signal'>): Promise<void>;
  engine(): EngineTarget | undefined;
  load?: TunnelOptions['load'];
  /** The keys to which clients seal requests. Absent: sealed requests are not opened. */
  seals?: AgentSealing | undefined;
  log(line: string): void;
  /** Called if every gateway refuses this agent. */
  onRefused(refusal: TunnelRefusal): void;
  /** Called if this session has ended: it was evicted, or its ticket is no longer valid. */
  onOver(why: string): void;
}

/**
 * Maximum wait for the acknowledgment of LEFT, which takes a round trip. An unreachable gateway must not delay the end
 * of a job.
 */
const LEFT_WAIT_MS = 2000;
/**
 * Maximum wait until the record before LEFT has been sent, because only that record has the reason of the end. It is
 * short, because an agent that is forced to end has little time.
 */
const DOWN_WAIT_MS = 200;
/** Interval of checks whether a new encryption key is due. */
const SEAL_KEY_POLL_MS = 60_000;
/**
 * Interval at which the list of gateways is read. Gateways rarely change, and a thousand agents ask the same gateway.
 */
const GATEWAYS_REFRESH_MS = 30_000;

export class Session {
  readonly ticket: Ticket;
  readonly key: SessionKey;
  readonly #keeper: RecordKeeper;
  readonly #gateways: SessionTunnels;
  #signed: { record: SessionRecord; update: EntryUpdate } | undefined;
  readonly #options: SessionOptions;
  #mesh: Mesh | undefined;
  #left: Promise<boolean> | undefined;
  #sealing: NodeJS.Timeout | undefined;
  #pollTimer: NodeJS.Timeout | undefined;

  constructor(options: SessionOptions) {
    const { ticket, key, first, seals, log } = options;
    this.#options = options;
    this.ticket = ticket;
    this.key = key;
    this.#keeper = new RecordKeeper({ ...first, ...seals?.recordPart(ticket) }, () => this.#announce(), log);
    this.#gateways = this.#createGateways();
  }

  #createGateways(): SessionTunnels {
    const { ticket, key, gateways, openTunnel, proxy, usage, order, engine, load, seals, log, onRefused, onOver } =
      this.#options;
    return new SessionTunnels({
      accountOf: this.#options.accountOf,
      named: gateways,
      configured: this.#options.configured,
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

  /** Gateways to which this session currently has a tunnel. */
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
      this.#sealing = setInterval(() => this.change(seals.recordPart(this.ticket)), SEAL_KEY_POLL_MS).unref();
    this.#refreshGateways();
    neverRejects(this.#join());
  }

  #refreshGateways(): void {
    const { askGateway } = this.#options;
    if (askGateway === undefined) return;
    const soon = GATEWAYS_REFRESH_MS * (0.75 + Math.random() / 2);
    const poll = async () => {
      await this.#fetchHints(askGateway);
      if (this.#left === undefined) this.#refreshGateways();
    };
    this.#pollTimer = setTimeout(() => neverRejects(poll()), soon);
    this.#pollTimer.unref();
  }

  /**
   * Asks the connected gateways of the institution until one answers. A peer institution's gateway is not asked,
   * because it could claim any gateway to be one of ours.
   */
  async #fetchHints(askGateway: (gateway: URL) => Promise<GatewayHints | undefined>): Promise<void> {
    for (const { url: gateway, own } of this.connected) {
      if (!own) continue;
      const hints = await askGateway(gateway);
      if (this.#left !== undefined) return;
      if (hints === undefined) continue;
      // Add the gateway that answered: it does not name itself.
      this.#gateways.learn([{ url: gateway, own: true }, ...hints.gateways]);
      this.#mesh?.tune(tunedOptions(hints.membership));
      return;
    }
  }

  /** Joins the mesh. A node that cannot listen is still served by its gateways. */
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
      log(`warning: other agents cannot reach this agent: ${errorText(error)}`);
    }
  }

  #announce(): Promise<void> {
    this.#mesh?.publish(this.#update());
    return this.#gateways.publish();
  }

  /** Number of agents to which this session has a channel. */
  get peers(): number {
    return this.#mesh?.channels.size ?? 0;
  }

  get mesh(): Mesh | undefined {
    return this.#mesh;
  }

  /**
   * Resolves when a gateway has stored this session's record for the first time. From then on requests can be routed to
   * it.
   */
  get stored(): Promise<void> {
    return this.#gateways.stored;
  }

  change(change: RecordChange): void {
    this.#keeper.change(change);
  }

  /**
   * The newest record, with everything that a replica needs to verify it without knowing this session. Signed once,
   * regardless of the number of receivers.
   */
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

  /**
   * The LEFT record that gateways receive if this agent is killed. Its version is 0, because LEFT takes precedence over
   * any state regardless of versions.
   */
  will(): Uint8Array {
    const payload = encodePayload(payloadOf(this.record));
    return signRecord({ session: this.id, state: 'LEFT', version: 0, payload }, this.key, nodeCrypto);
  }

  /** Uploads the last output of engine and agent, which explains the node's end. */
  leaveLogTail(tail: Uint8Array, signal: AbortSignal): Promise<void> {
    const { ticket, key } = this;
    return this.#options.leaveLogTail({ gateways: this.#gateways.reachable, ticket, key, tail, signal });
  }

  /** Refuses new attempts. Resolves when none runs any more. */
  drain(): Promise<void> {
    return this.#gateways.drain();
  }

  /**
   * Hands back to the gateways the requests that the engine will never answer, so that other nodes may continue them.
   */
  giveUp(): void {
    neverRejects(this.#gateways.drain());
    this.#gateways.giveUp();
  }

  /**
   * Publishes LEFT, waits at most 2 s for its acknowledgment, and closes the sockets. Resolves with true if all
   * gateways have acknowledged. Idempotent; never rejects.
   */
  leave(): Promise<boolean> {
    this.#left ??= (async () => {
      // Send the record before LEFT first, because only that record has the reason of the end.
      await settlesWithin(DOWN_WAIT_MS, this.#keeper.announced);
      this.#keeper.change({ state: 'LEFT' });
      const acknowledged = await settlesWithin(LEFT_WAIT_MS, this.#keeper.announced);
      await this.#close();
      return acknowledged;
    })();
    return this.#left;
  }

  /** Closes without publishing LEFT, because no gateway listens any more. */
  async close(): Promise<void> {
    this.#left ??= this.#close().then(() => true);
    await this.#left;
  }

  async #close(): Promise<void> {
    clearInterval(this.#sealing);
    clearTimeout(this.#pollTimer);
    this.#mesh?.close();
    await this.#gateways.close();
  }
}

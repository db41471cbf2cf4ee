/**
 * This agent's part in circuits. Other agents reach it through circuits, and it reaches other agents through circuits.
 * With `--offer-relay` it is a relay too.
 */
import type { Duplex } from 'node:stream';
import type { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { decodeTicket } from '../../../shared/lattice/ticket.ts';
import { nodeCrypto } from '../../host/node-crypto.ts';
import type { WebSocketOptions } from '../../tunnel/open-websocket.ts';
import type { SessionIdentity } from '../../tunnel/tunnel-types.ts';
import type { ChannelPeer, Credentials, ProvenConnection } from '../channel/accept-channel.ts';
import type { Purpose } from '../channel/channel-preface.ts';
import { dialChannel, secureDialedSocket } from '../channel/dial-channel.ts';
import type { MeshGateway } from '../gateway-gossip-sockets.ts';
import type { ObservedPort } from '../punch/hole-puncher.ts';
import { observeAt } from '../punch/observe-address.ts';
import { agentRendezvous, CircuitDialer, type RendezvousPoint } from './circuit-dialer.ts';
import { CircuitRelay } from './circuit-relay.ts';
import { openGatewayLeg } from './gateway-circuit.ts';
import { RELAYS_TRIED_MAX, type RelayAgent, relaysFor } from './relay-choice.ts';
import { Reservations } from './relay-reservations.ts';

interface CircuitsOptions {
  own: Credentials;
  session: string;
  replica: RegistryReplica;
  /** Verifies a ticket. Throws if this agent does not accept it. */
  openTicket(ticket: Uint8Array): ChannelPeer;
  /** True if this agent relays for others (`--offer-relay`). */
  offered: boolean;
  identity: SessionIdentity;
  env: NodeJS.ProcessEnv;
  proxy?: WebSocketOptions['proxy'];
  /** Handles a caller's connection, which begins now. Owns the socket. False if it did not become a channel. */
  accept(socket: Duplex, relay: string): Promise<boolean>;
  random(): number;
}

/**
 * Maximum number of gateways at which a session is searched. More are not needed, because an agent is connected to all
 * gateways that it reaches.
 */
const GATEWAYS_TRIED_MAX = 2;

/** Maximum number of relays that are asked for this agent's outside address. */
const OBSERVERS_MAX = 2;

/** Maximum number of calls through gateways whose handshake is unfinished. Further calls are not answered. */
const ANSWERING_MAX = 16;

export class Circuits {
  readonly relay: CircuitRelay | undefined;
  readonly #options: CircuitsOptions;
  readonly #reservations: Reservations;
  readonly #dialler: CircuitDialer;
  #gateways: readonly MeshGateway[] = [];
  #answering = 0;
  readonly #abort = new AbortController();

  constructor(options: CircuitsOptions) {
    const { session, replica, offered, accept, random } = options;
    this.#options = options;
    this.relay = offered ? new CircuitRelay({ admits: (peer) => this.#admits(peer) }) : undefined;
    const dial = (relay: RelayAgent) => this.#dialRelay(relay);
    this.#reservations = new Reservations({ relays: () => relaysFor(session, session, replica), dial, accept, random });
    this.#dialler = new CircuitDialer({
      meetings: (callee) => this.#meetings(callee),
      secure: (socket, callee, purpose) => this.secure(socket, callee, purpose),
    });
  }

  /** Relays that currently hold a reservation of this agent. */
  get reservedAt(): string[] {
    return this.#reservations.relays;
  }

  open(): void {
    this.#reservations.open();
  }

  /** Call when these entries of the replica have changed. */
  changed(sessions: readonly string[]): void {
    if (sessions.some((session) => this.#options.replica.get(session)?.payload?.relay === true))
      this.#reservations.look();
  }

  /** Sets the gateways that admitted this session. They are relays too, unless they refuse circuits. */
  setGateways(gateways: readonly MeshGateway[]): void {
    this.#gateways = gateways.slice(0, GATEWAYS_TRIED_MAX);
  }

  /** Answers an agent that waits for this one at a gateway's circuit. */
  answer(gateway: URL, name: string): void {
    if (this.#answering >= ANSWERING_MAX || this.#abort.signal.aborted) return;
    this.#answering++;
    const id = this.#gateways.find(({ url }) => url.href === gateway.href)?.id ?? gateway.host;
    this.#leg(gateway, name, this.#abort.signal)
      .then((socket) => this.#options.accept(socket, id))
      .catch(() => {}) // the relay informs the caller
      .finally(() => this.#answering--);
  }

  #leg(gateway: URL, to: string, signal: AbortSignal): Promise<Duplex> {
    const { identity, own, env, proxy } = this.#options;
    return openGatewayLeg({ gateway, to, identity, ticket: own.ticket, env, proxy, signal });
  }

  /** True if a relay is known through which `callee` may be reachable. */
  mayReach(callee: string): boolean {
    return this.#meetings(callee).length > 0;
  }

  /** Resolves with an authenticated connection to `callee` through a relay. @throws ChannelError */
  dial(callee: string, signal: AbortSignal, purpose: Purpose = 'mesh'): Promise<ProvenConnection> {
    return this.#dialler.dial(callee, AbortSignal.any([signal, this.#abort.signal]), purpose);
  }

  /** Call when a connection through this relay stalled or broke. */
  avoid(relay: string): void {
    this.#dialler.avoid(relay);
  }

  /**
   * Checks that the session is in this agent's replica. A valid ticket is not enough: a relay must never carry data for
   * a session that its replica does not show.
   */
  #admits({ session, ticket }: ChannelPeer): boolean {
    const { replica } = this.#options;
    return (
      replica.get(session) !== undefined &&
      replica.ticketState(decodeTicket(new Uint8Array(ticket), nodeCrypto)) === 'good'
    );
  }

  #meetings(callee: string): RendezvousPoint[] {
    const { session, replica } = this.#options;
    const dial = (relay: RelayAgent) => this.#dialRelay(relay);
    const agents = relaysFor(callee, session, replica).map((relay) => agentRendezvous(relay, dial));
    const own = this.relay?.holds(callee) ? [this.#ownMeeting(this.relay)] : [];
    const gateways = this.#gateways.map(
      ({ id, url }): RendezvousPoint => ({ relay: id, meet: (to, signal) => this.#leg(url, to, signal) }),
    );
    return [...own, ...agents.slice(0, RELAYS_TRIED_MAX - gateways.length), ...gateways];
  }

  /** If this agent is a relay, it reaches the sessions that have a reservation with it. */
  #ownMeeting(relay: CircuitRelay): RendezvousPoint {
    return { relay: this.#options.session, meet: (callee) => relay.callOwn(callee) };
  }

  #dialRelay({ session, addresses }: RelayAgent, localPort?: number): Promise<ProvenConnection> {
    const { own, openTicket } = this.#options;
    const to = { addresses, session, ...this.#ticketOf(session), ...(localPort !== undefined && { localPort }) };
    return dialChannel({ own, openTicket, ...to, circuit: true, signal: this.#abort.signal });
  }

  /** Does the handshake with `callee` as the dialing end. @throws ChannelError */
  secure(socket: Duplex, callee: string, purpose: Purpose = 'mesh'): Promise<ProvenConnection> {
    const { own, openTicket } = this.#options;
    const known = this.#ticketOf(callee);
    const { signal } = this.#abort;
    return secureDialedSocket(socket, { own, openTicket, session: callee, ...known, purpose, signal });
  }

  /** Asks a relay for the outside address of a local port; see HolePuncherOptions. */
  async observe(localPort: number, signal: AbortSignal): Promise<ObservedPort | undefined> {
    const { session, replica } = this.#options;
    for (const relay of relaysFor(session, session, replica).slice(0, OBSERVERS_MAX)) {
      const observed = await observeAt(() => this.#dialRelay(relay, localPort), signal).catch(() => undefined);
      if (observed !== undefined) return observed;
    }
    return undefined;
  }

  #ticketOf(session: string): { ticket?: Uint8Array } {
    const ticket = this.#options.replica.get(session)?.ticket.bytes;
    return ticket === undefined ? {} : { ticket };
  }

  /** Ends all calls and reservations. Idempotent. */
  close(): void {
    this.#abort.abort();
    this.#reservations.close();
    this.relay?.close();
  }
}

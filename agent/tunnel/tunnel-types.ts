/** Interface between the tunnel and the rest of the agent. */
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import type { LoadCounter } from '../attempts/load-reports.ts';
import type { OrderOutcome } from '../deploy/deployment-decider.ts';
import type { EngineTarget } from '../engine/engine-address.ts';
import type { SealOpener } from '../seal/seal-opener.ts';
import type { WebSocketOptions } from './open-websocket.ts';

/** Why the gateway refuses this agent. Retrying cannot help; the process ends with 69. */
export interface TunnelRefusal {
  status: number;
  message: string;
}

export interface TunnelOptions {
  gateway: URL;
  /** The session's ticket, encoded. Every gateway that lists its issuer accepts it. */
  ticket: Uint8Array;
  identity: SessionIdentity;
  /** The session's current record, as an encoded update. Read each time the record is published. */
  update(): Uint8Array;
  /** An HTTP proxy for this gateway; takes precedence over the environment's proxies. */
  proxy?: WebSocketOptions['proxy'];
  /** Undefined while no engine can be reached: openings are then refused, never queued. */
  engine(): EngineTarget | undefined;
  /** Counts the engine's requests and reports its load. Absent: each gateway knows only its own requests. */
  load?: LoadCounter | undefined;
  /** Opens requests that clients sealed to this node. */
  seals?: SealOpener | undefined;
  log(line: string): void;
  /**
   * This gateway refuses this agent. After a 403 the agent asks again, rarely, unless the tunnel is closed: the list of
   * issuers may change.
   */
  onRefused(refusal: TunnelRefusal): void;
  /**
   * Final: the gateway reports that this session has ended (it was evicted, or its ticket has expired). It would admit
   * a new session.
   */
  onOver?(why: string): void;
  /** The gateway has stored the newest record. */
  onRecorded?(): void;
  /** `gateway`: its name as a gossip peer. */
  onConnected?(gateway: string): void;
  onDisconnected?(): void;
  /** Answers an order and then carries it out. Absent: this agent accepts no orders. */
  order?: (order: Uint8Array) => Promise<OrderOutcome>;
  /** An agent that cannot reach this one directly waits at this circuit of this gateway. */
  circuit?: (gateway: URL, name: string) => void;
  /** Sends the usage of our ingress to a gateway; this tunnel is one of the senders. */
  usage?: UsageSenderListener;
}

/** Sends usage to one gateway, while its tunnel is open. */
export interface UsageSender {
  /** Asks the gateway to store a batch of records; the gateway answers with the sequence. */
  send(sequence: number, json: string): void;
}

export interface UsageSenderListener {
  connected(sender: UsageSender): void;
  disconnected(sender: UsageSender): void;
  stored(sender: UsageSender, sequence: number): void;
}

/** The key pair of a session; see agent/tunnel/session-identity.ts. */
export interface SessionIdentity {
  session: string;
  publicKey: Uint8Array;
  sign(message: Uint8Array): Uint8Array;
}

/** One outbound WebSocket to one gateway, reconnected without end. */
export interface Tunnel {
  readonly connected: boolean;
  /** Requests of this gateway that the engine is working on. */
  readonly inFlight: number;
  open(): void;
  /**
   * Sends the record again; call after every change. Resolves when the gateway has stored it, possibly over a later
   * socket.
   */
  publish(): Promise<void>;
  /**
   * Asks the gateway whether that session is alive. `unknown`: it does not know, or does not answer within a second or
   * two.
   */
  probe(session: string): Promise<ProbeVerdict>;
  /** Refuses new openings; resolves when no request is in flight. */
  drain(): Promise<void>;
  /** Ends running attempts, so that other nodes can continue them. Call after `drain`. */
  giveUp(): void;
  /** Cancels running attempts and closes the socket. Idempotent. */
  close(): Promise<void>;
}

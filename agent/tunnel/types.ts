/** What the tunnel needs from the rest of the agent, and what it gives back. */
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import type { OrderOutcome } from '../deploy/deployments.ts';
import type { EngineTarget } from '../engine/address.ts';
import type { SealOpener } from '../seal/opener.ts';
import type { LoadCounter } from './load-reports.ts';
import type { WebSocketOptions } from './websocket.ts';

/** Why the gateway will not have this agent: retrying cannot help, the process ends with 69. */
export interface TunnelRefusal {
  status: number;
  message: string;
}

export interface TunnelOptions {
  gateway: URL;
  /** The session's ticket, encoded. Every gateway that lists its issuer takes it. */
  ticket: Uint8Array;
  identity: SessionIdentity;
  /** The session's present record, an encoded update. Read whenever it is published. */
  update(): Uint8Array;
  /** An HTTP proxy for this gateway, before those that the environment names. */
  proxy?: WebSocketOptions['proxy'];
  /** Undefined while no engine can be reached: openings are then refused, never queued. */
  engine(): EngineTarget | undefined;
  /** Counts the engine's requests and tells how busy it is. Without it each gateway knows only the requests that it sent itself. */
  load?: LoadCounter | undefined;
  /** Opens requests that clients sealed to this node. */
  seals?: SealOpener | undefined;
  log(line: string): void;
  /** This gateway refuses this agent. After a 403 the agent asks again, seldom, unless the tunnel is closed: the list may change. */
  onRefused(refusal: TunnelRefusal): void;
  /** Final: the gateway says that this session has ended (evicted, or its ticket has ended). It admits a new session. */
  onOver?(why: string): void;
  /** The gateway has stored the newest record. */
  onRecorded?(): void;
  /** `gateway`: its name as a gossip peer. */
  onConnected?(gateway: string): void;
  onDisconnected?(): void;
  /** Answers an order and then carries it out. Absent: this agent takes no orders. */
  order?: (order: Uint8Array) => Promise<OrderOutcome>;
  /** An agent without a way to this one waits at this circuit of this gateway. */
  circuit?: (gateway: URL, name: string) => void;
  /** Brings the use of our ingress to a gateway. This tunnel is one way to bring it. */
  usage?: UsageSenderListener;
}

/** The way to one gateway, while it is open. */
export interface UsageSender {
  /** Asks it to store a batch of records; it answers with the sequence. */
  send(sequence: number, json: string): void;
}

export interface UsageSenderListener {
  connected(sender: UsageSender): void;
  disconnected(sender: UsageSender): void;
  stored(sender: UsageSender, sequence: number): void;
}

/** The key pair of a session: see agent/tunnel/identity.ts. */
export interface SessionIdentity {
  session: string;
  publicKey: Uint8Array;
  sign(message: Uint8Array): Uint8Array;
}

/** One outbound WebSocket to one gateway, reconnected for ever. */
export interface Tunnel {
  readonly connected: boolean;
  /** Requests of this gateway that the engine is working on. */
  readonly inFlight: number;
  open(): void;
  /** Sends the record again; call after every change. Resolves when the gateway has stored it, if need be over a later socket. */
  publish(): Promise<void>;
  /** Whether the gateway finds that session alive. `unknown`: it cannot tell, or does not within a second or two. */
  probe(session: string): Promise<ProbeVerdict>;
  /** Takes no new openings; resolves when nothing is in flight any more. */
  drain(): Promise<void>;
  /** Breaks running attempts off, for other nodes to answer. Call after `drain`. */
  giveUp(): void;
  /** Cancels running attempts and closes the socket. Idempotent. */
  close(): Promise<void>;
}

/** The interface between the tunnel and the rest of the agent. */
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import type { CallerAccount } from '../attempts/caller-account.ts';
import type { AttemptGiver } from '../attempts/engine-attempts.ts';
import type { LoadCounter } from '../attempts/load-reports.ts';
import type { OrderOutcome } from '../deploy/deployment-decider.ts';
import type { EngineTarget } from '../engine/engine-address.ts';
import type { SealOpener } from '../seal/seal-opener.ts';
import type { WebSocketOptions } from './open-websocket.ts';

/** Why the gateway refuses this agent. Another try cannot help; the process ends with exit code 69. */
export interface TunnelRefusal {
  status: number;
  message: string;
}

export interface TunnelOptions {
  gateway: URL;
  /** The encoded ticket of the session. Every gateway that lists its issuer accepts it. */
  ticket: Uint8Array;
  identity: SessionIdentity;
  /** Returns the session's current record as an encoded update. Called each time the record is published. */
  update(): Uint8Array;
  /** An HTTP proxy for this gateway. It takes precedence over the environment's proxies. */
  proxy?: WebSocketOptions['proxy'];
  /**
   * Returns the engine's address. Undefined while no engine can be reached: attempts are then refused, never queued.
   */
  engine(): EngineTarget | undefined;
  /**
   * Counts the requests at the engine and returns its load. Absent: each gateway knows only the requests that it sent.
   */
  load?: LoadCounter | undefined;
  /** Attempts of the institution's other gateways, which this gateway may claim. */
  siblings?: () => Iterable<AttemptGiver>;
  /** Accounts for this gateway's attempts. */
  account?: CallerAccount | undefined;
  /** Opens requests that clients sealed to this node. */
  seals?: SealOpener | undefined;
  log(line: string): void;
  /**
   * Called if this gateway refuses this agent. After a 403 the agent asks again at long intervals until the tunnel is
   * closed, because the list of issuers may change.
   */
  onRefused(refusal: TunnelRefusal): void;
  /**
   * Called if this session has ended according to this gateway: it was evicted, or its ticket has expired. No later
   * answer of this gateway changes that, but the gateway would admit a new session.
   */
  onOver?(why: string): void;
  /** Called when the gateway has stored the newest record. */
  onRecorded?(): void;
  /** @param gateway the gateway's gossip id */
  onConnected?(gateway: string): void;
  onDisconnected?(): void;
  /** Answers an order, and then carries it out. Absent: this agent accepts no orders. */
  order?: (order: Uint8Array) => Promise<OrderOutcome>;
  /**
   * Called if another agent waits for this one at the gateway's circuit `name`, because it cannot reach this agent
   * directly.
   */
  circuit?: (gateway: URL, name: string) => void;
  /** Delivers usage records that this agent made. The tunnel registers as one of its senders. */
  usage?: UsageSenderListener;
}

/** Sends usage records to one gateway while its tunnel is open. */
export interface UsageSender {
  /** Asks the gateway to store a batch of records. The gateway acknowledges with the same sequence number. */
  send(sequence: number, json: string): void;
}

export interface UsageSenderListener {
  connected(sender: UsageSender): void;
  disconnected(sender: UsageSender): void;
  stored(sender: UsageSender, sequence: number): void;
}

/** The key pair of a session; see session-identity.ts. */
export interface SessionIdentity {
  session: string;
  publicKey: Uint8Array;
  sign(message: Uint8Array): Uint8Array;
}

/** An outgoing WebSocket to one gateway, which is reconnected until the agent closes it. */
export interface Tunnel {
  readonly connected: boolean;
  /** Number of this gateway's requests on which the engine works. */
  readonly inFlight: number;
  /** Attempts that this gateway opened or claimed. */
  readonly attempts: AttemptGiver;
  open(): void;
  /**
   * Sends the record again. Call after every change. Resolves when the gateway has stored it, possibly over a later
   * socket.
   */
  publish(): Promise<void>;
  /**
   * Asks the gateway whether that session is alive. `unknown`: the gateway does not know, or does not answer within a
   * second or two.
   */
  probe(session: string): Promise<ProbeVerdict>;
  /** Refuses new attempts. Resolves when none runs. */
  drain(): Promise<void>;
  /** Ends running attempts, so that other nodes can continue them. Call after `drain`. */
  giveUp(): void;
  /** Cancels running attempts and closes the socket. Idempotent. */
  close(): Promise<void>;
}

/** What the tunnel needs from the rest of the agent, and what it gives back. */
import type { NodeRecord } from '../../shared/lattice/node.ts';

/** Where requests go on this machine. */
export interface EngineTarget {
  /** Scheme, host and port, e.g. `http://127.0.0.1:8000`. */
  origin: string;
  /** '' or a path without a trailing slash, e.g. `/llm`. */
  pathPrefix: string;
  /** The engine's own API key, sent as `Authorization: Bearer`. */
  key?: string;
}

/** Why the gateway will not have this agent: retrying cannot help, the process ends with 69. */
export interface Refusal {
  status: number;
  message: string;
}

export interface TunnelOptions {
  gateway: URL;
  token: string;
  cluster?: string;
  /** Ed25519 key pair of this session: see agent/tunnel/identity.ts. */
  identity: Identity;
  /** The record as it is now; read whenever it is published. */
  record(): NodeRecord;
  /** Undefined while no engine can be reached: openings are then refused, never queued. */
  engine(): EngineTarget | undefined;
  log(line: string): void;
  /** Final: this gateway will not have this agent. */
  onRefused(refusal: Refusal): void;
  /** Final: this session has ended, says the gateway (evicted, or its ticket counts no more); another one is welcome. */
  onOver?(why: string): void;
  /** The gateway has stored the newest record. */
  onRecorded?(): void;
  onConnected?(): void;
  onDisconnected?(): void;
}

export interface Identity {
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
  /** Takes no new openings; resolves when nothing is in flight any more. */
  drain(): Promise<void>;
  /** Cancels what is still running and closes the socket. Idempotent. */
  close(): Promise<void>;
}

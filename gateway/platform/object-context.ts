/**
 * What a host gives to an object of the gateway: storage, sockets, an alarm, a clock. `hosts/worker` makes it of a Durable Object's
 * state, `hosts/node` of SQLite, timers and `ws`. Rooms know this interface and no platform.
 *
 * Every host keeps these promises, and test/e2e/standalone/object-contract.test.ts checks them on every host:
 * - Writes of one synchronous turn commit together.
 * - No frame, reply or response of an object leaves before the writes made ahead of it have committed.
 * - Arguments and results of a call are copies.
 * - An object that cannot be constructed fails its callers, and is constructed anew for the next one.
 * - An object has one alarm. It is stored, fires at least once, and needs no caller after a restart.
 */
import type { StorageHealth } from './storage/health.ts';

export interface ObjectContext {
  /** The name that callers know the object by; unique within its class. */
  readonly name: string;
  readonly storage: ObjectStorage;
  /** Whether that can be written. */
  readonly health: StorageHealth;
  readonly sockets: ObjectSockets;
  readonly clock: Clock;
  /** Keeps the object in memory until `work` settles. */
  waitUntil(work: Promise<unknown>): void;
}

export interface ObjectStorage {
  readonly sql: Sql;
  readonly kv: KeyValue;
  /** Milliseconds since the epoch; null: none is set, or it is being handled now. */
  getAlarm(): Promise<number | null>;
  /** Replaces the alarm that is set. At or before now: it fires at once. */
  setAlarm(at: number): Promise<void>;
  /** Deletes rows, keys and the alarm. */
  deleteAll(): Promise<void>;
}

export type SqlValue = ArrayBuffer | string | number | null;
type SqlRow = Record<string, SqlValue>;

export interface Sql {
  /** One statement with its bindings, or several without any. Reads may be lazy: use a cursor before the next write. */
  exec<Row extends SqlRow>(query: string, ...bindings: unknown[]): SqlCursor<Row>;
  readonly databaseSize: number;
}

export interface SqlCursor<Row> extends Iterable<Row> {
  toArray(): Row[];
  /** @throws Error unless there is exactly one row */
  one(): Row;
}

/** Values are what structuredClone takes. */
export interface KeyValue {
  get<Value = unknown>(key: string): Value | undefined;
  put<Value>(key: string, value: Value): void;
  delete(key: string): boolean;
  /** In the order of the keys' bytes. */
  list<Value = unknown>(options: { prefix: string }): Iterable<[string, Value]>;
}

/** The end of a WebSocket that an object holds. */
export interface ObjectSocket {
  /** 1: open (RFC 6455's states as browsers number them). */
  readonly readyState: number;
  send(message: string | Uint8Array): void;
  close(code?: number, reason?: string): void;
}

/**
 * The sockets of one object. The host answers heartbeats (PING_TEXT with PONG_TEXT) without waking the object, and hands messages and
 * closes to `webSocketMessage`, `webSocketClose` and `webSocketError`.
 */
export interface ObjectSockets {
  /** A new socket. Its other end goes out with `response`, the answer to the upgrade request; `headers` are that answer's. */
  accept(headers?: Record<string, string>): { socket: ObjectSocket; response: Response };
  /** Sockets that outlived the object's memory. */
  survivors(): ObjectSocket[];
  /** Attaches what the object's next life must know of a socket. */
  note(socket: ObjectSocket, attachment: unknown): void;
  /** What was attached last; null: nothing. */
  noted(socket: ObjectSocket): unknown;
  /** When the last heartbeat came; milliseconds since the epoch, 0: none. */
  pingedAt(socket: ObjectSocket): number;
  /** Calls `flush` once, when the host has handled what it has read: what is put meanwhile shares a message. */
  schedule(flush: () => void): void;
}

/** Timers end with the object's memory. */
export interface Clock {
  now(): number;
  /** Rings once; the result cancels it. */
  after(ms: number, ring: () => void): () => void;
  every(ms: number, ring: () => void): () => void;
}

/** Keeps the host at work for a caller that does not wait. */
export interface Background {
  waitUntil(work: Promise<unknown>): void;
}

/** Methods that the host calls, and no other object. */
type HostMethods = 'fetch' | 'alarm' | 'webSocketMessage' | 'webSocketClose' | 'webSocketError';

/** An object as its callers see it: each method is asynchronous and rejects where the object failed or is gone. */
export type ObjectStub<T> = {
  [Name in Exclude<keyof T, HostMethods>]: T[Name] extends (...args: infer Args) => infer Result
    ? (...args: Args) => Promise<Awaited<Result>>
    : never;
} & { fetch(request: string | Request, init?: RequestInit): Promise<Response> };

export interface ObjectNamespace<T> {
  getByName(name: string): ObjectStub<T>;
}

/**
 * The interface of a host to an object of the gateway: storage, sockets, an alarm, a clock. `hosts/worker` implements
 * it with a Durable Object's state, `hosts/node` with SQLite, timers and `ws`. All other folders use this interface and
 * no platform API. Every host guarantees the following, and test/e2e/standalone/object-contract.test.ts checks it on
 * every host:
 * - Writes of one synchronous turn commit together.
 * - No frame, reply or response of an object is sent before the writes made ahead of it have committed.
 * - Arguments and results of a call are copies.
 * - If an object cannot be constructed, its callers fail, and the next call constructs it again.
 * - An object has one alarm. It is stored, fires at least once, and needs no caller after a restart.
 */
import type { StorageHealth } from './storage/storage-health.ts';

export interface ObjectContext {
  /** The name by which callers address the object; unique within its class. */
  readonly name: string;
  readonly storage: ObjectStorage;
  /** Whether writes to the object's storage succeed. */
  readonly health: StorageHealth;
  readonly sockets: ObjectSockets;
  readonly clock: Clock;
  /** Keeps the object in memory until `work` settles. */
  waitUntil(work: Promise<unknown>): void;
}

export interface ObjectStorage {
  readonly sql: Sql;
  readonly kv: KeyValue;
  /** Time of the alarm in milliseconds since the epoch; null: no alarm is set, or its handler is running. */
  getAlarm(): Promise<number | null>;
  /** Sets the alarm and replaces the current one. If `at` is not in the future, it fires immediately. */
  setAlarm(at: number): Promise<void>;
  /** Deletes rows, keys and the alarm. */
  deleteAll(): Promise<void>;
}

export type SqlValue = ArrayBuffer | string | number | null;
type SqlRow = Record<string, SqlValue>;

export interface Sql {
  /**
   * Runs one statement with its bindings, or several without bindings. A read may run only while its cursor is used, so
   * use the cursor before the next write.
   */
  exec<Row extends SqlRow>(query: string, ...bindings: unknown[]): SqlCursor<Row>;
  /** Runs one writing statement once for each list of bindings. Absent on Workers; see `execEach`. */
  execEach?(query: string, rows: readonly (readonly SqlValue[])[]): void;
  readonly databaseSize: number;
}

export interface SqlCursor<Row> extends Iterable<Row> {
  toArray(): Row[];
  /** Returns the only row. @throws Error unless there is exactly one */
  one(): Row;
}

/** Key-value storage. Values must be supported by structuredClone. */
export interface KeyValue {
  get<Value = unknown>(key: string): Value | undefined;
  put<Value>(key: string, value: Value): void;
  delete(key: string): boolean;
  /** Yields entries in the byte order of the keys. */
  list<Value = unknown>(options: { prefix: string }): Iterable<[string, Value]>;
}

/** An object's end of a WebSocket. */
export interface ObjectSocket {
  /** State as in the browser's WebSocket; 1: open. */
  readonly readyState: number;
  send(message: string | Uint8Array): void;
  close(code?: number, reason?: string): void;
}

/**
 * The sockets of one object. The host answers heartbeats (PING_TEXT with PONG_TEXT) without waking the object, and
 * passes messages and closes to `webSocketMessage`, `webSocketClose` and `webSocketError`.
 */
export interface ObjectSockets {
  /**
   * Creates a socket. Its other end is part of `response`, the response to the upgrade request, to which `headers` are
   * added.
   */
  accept(headers?: Record<string, string>): { socket: ObjectSocket; response: Response };
  /** Returns the sockets that outlived the object's memory. */
  survivors(): ObjectSocket[];
  /** Attaches data to a socket. The object can read the data after hibernation. */
  note(socket: ObjectSocket, attachment: unknown): void;
  /** Returns the last attachment; null: none. */
  noted(socket: ObjectSocket): unknown;
  /** Returns when the last heartbeat arrived; milliseconds since the epoch, 0: none. */
  pingedAt(socket: ObjectSocket): number;
  /**
   * Calls `flush` once, after the host has handled all input that it has read, so that all frames that are written
   * until then are sent in one message.
   */
  schedule(flush: () => void): void;
}

/** Timers of an object. They end with the object's memory. */
export interface Clock {
  now(): number;
  /** Calls `onTimer` once after `ms`. Returns a function that cancels the timer. */
  after(ms: number, onTimer: () => void): () => void;
  every(ms: number, onTimer: () => void): () => void;
}

/** Keeps the host working on something for which the caller does not wait. */
export interface Background {
  waitUntil(work: Promise<unknown>): void;
}

/** Methods that only the host calls. */
type HostMethods = 'fetch' | 'alarm' | 'webSocketMessage' | 'webSocketClose' | 'webSocketError';

/** An object as its callers see it: each method is asynchronous, and rejects if the object failed or is gone. */
export type ObjectStub<T> = {
  [Name in Exclude<keyof T, HostMethods>]: T[Name] extends (...args: infer Args) => infer Result
    ? (...args: Args) => Promise<Awaited<Result>>
    : never;
} & { fetch(request: string | Request, init?: RequestInit): Promise<Response> };

export interface ObjectNamespace<T> {
  getByName(name: string): ObjectStub<T>;
}

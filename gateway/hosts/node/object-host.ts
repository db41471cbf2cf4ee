import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Env } from '../../env.ts';
import type { GatewayObject, ObjectClass, ObjectHandlers } from '../../platform/gateway-object.ts';
import type { ObjectNamespace, ObjectStub } from '../../platform/object-context.ts';
import { type StorageHealth, storageHealth } from '../../platform/storage/storage-health.ts';
import { clonePlain } from './clone-plain.ts';
import { NodeContext } from './node-context.ts';
import { Alarms, type ObjectAlarm } from './object-alarms.ts';
import { fileName } from './object-file-name.ts';
import type { Gate } from './output-gate.ts';
import { Database } from './sqlite.ts';

/** An object that is not used for this time closes its file. */
const FILE_IDLE_MS = 10_000;
/**
 * An object that is not used for this time is dropped from memory, unless it has work in progress. (Durable Objects are
 * evicted after one to two minutes.)
 */
const MEMORY_IDLE_MS = 10 * 60_000;
const SWEEP_MS = 5_000;
/**
 * Maximum open files of objects with sockets, such as the tunnels of connected nodes. Each file uses three descriptors
 * and 0.2 MiB. Beyond this, the files that were not used for longest are closed.
 */
const SOCKET_FILES_MAX = 2_048;
/** Closing a file may wait for the disk, so the event loop turns after this time of closing. */
const CLOSING_MS = 2;

/** An object's database that is stored beyond this process's disk. */
export interface OwnedObject {
  readonly database: Database;
  gate(onFailure: (error: unknown) => void): Gate;
  /** Stores the object's alarm with its turn; null: the alarm was deleted. */
  setAlarm(at: number | null): void;
}

/** Opens objects that are stored beyond this process's disk. */
export interface OwnedObjects {
  /** @param path file for the object's database while the object is in memory */
  open(key: string, path: string): Promise<OwnedObject>;
  readonly health: StorageHealth;
}

interface Instance {
  owned: OwnedObject | undefined;
  room: GatewayObject & ObjectHandlers;
  context: NodeContext;
  /** Pending calls of the object. They are rejected if the object is reset. */
  calls: Set<(cause: unknown) => void>;
  usedAt: number;
}

interface HostOptions {
  /** An existing absolute path. */
  directory: string;
  classes: Readonly<Record<string, ObjectClass>>;
  env(): Env;
  log(line: string): void;
  /** Maximum open files of objects with sockets. Tests set it; the default is SOCKET_FILES_MAX. */
  socketFilesMax?: number;
  /** Absent: the objects are stored in their files, and in `alarms.sqlite`. */
  owned?: OwnedObjects;
}

/** Calls one object. */
interface ObjectCaller {
  call(className: string, name: string, method: string, args: unknown[]): Promise<unknown>;
  fetch(className: string, name: string, request: Request): Promise<Response>;
}

/** Returns stubs with the methods of a class. They call objects through `caller`. */
export function stubsOf<T extends GatewayObject>(
  className: string,
  Room: ObjectClass,
  caller: ObjectCaller,
): ObjectNamespace<T> {
  const methods = Object.getOwnPropertyNames(Room.prototype).filter((name) => name !== 'constructor');
  class Stub {
    readonly name: string;

    constructor(name: string) {
      this.name = name;
    }

    fetch(request: string | Request, init?: RequestInit): Promise<Response> {
      const streams = init?.body instanceof ReadableStream;
      const asked = new Request(request, streams ? { ...init, duplex: 'half' } : init);
      return caller.fetch(className, this.name, asked);
    }
  }
  for (const method of methods) {
    if (method === 'fetch') continue;
    const call = function call(this: Stub, ...args: unknown[]) {
      return caller.call(className, this.name, method, args);
    };
    Object.defineProperty(Stub.prototype, method, { value: call, writable: true });
  }
  return { getByName: (name) => new Stub(name) as unknown as ObjectStub<T> };
}

/**
 * The objects of one process. Each object has its own file, and one instance while it is in use. A call runs in the
 * next turn of the event loop; arguments and results are copied.
 */
export class ObjectHost {
  readonly #options: HostOptions;
  readonly #alarms: Alarms;
  readonly #instances = new Map<string, Instance>();
  /** Owned objects that are being opened. Calls of an object wait for it in their order. */
  readonly #opening = new Map<string, Promise<Instance>>();
  readonly #sweeper: NodeJS.Timeout;

  constructor(options: HostOptions) {
    this.#options = options;
    for (const name of Object.keys(options.classes)) mkdirSync(join(options.directory, name), { recursive: true });
    const alarms = options.owned === undefined ? join(options.directory, 'alarms.sqlite') : ':memory:';
    this.#alarms = new Alarms(
      new Database(alarms),
      (className, name) => this.#run(className, name, (room) => room.alarm?.()),
      (className, name) => this.#onAlarmHandled(`${className}/${name}`),
    );
    this.#sweeper = setInterval(() => this.#sweep(), SWEEP_MS);
    this.#sweeper.unref();
  }

  /** From now on alarms fire. Called when everything that objects need is ready. */
  start(): void {
    this.#alarms.start();
  }

  namespace<T extends GatewayObject>(className: string): ObjectNamespace<T> {
    return stubsOf(className, this.#classOf(className), this);
  }

  #classOf(className: string): ObjectClass {
    const Room = this.#options.classes[className];
    if (Room === undefined) throw new Error(`there is no class ${className}`);
    return Room;
  }

  async call(className: string, name: string, method: string, args: unknown[]): Promise<unknown> {
    const copied = args.map(clonePlain);
    const result = await this.#run(className, name, (room) => {
      const called: unknown = Reflect.get(room, method);
      if (typeof called !== 'function') throw new TypeError(`${className} has no method ${method}`);
      return Reflect.apply(called, room, copied) as unknown;
    });
    return clonePlain(result);
  }

  fetch(className: string, name: string, request: Request): Promise<Response> {
    return this.#run(className, name, (room) => {
      if (room.fetch === undefined) throw new TypeError(`${className} has no fetch`);
      return room.fetch(request);
    });
  }

  /** Runs `work` in its own turn. The result is returned after all writes are committed. */
  async #run<T>(className: string, name: string, work: (room: Instance['room']) => T | Promise<T>): Promise<T> {
    await undefined;
    const found = this.#instance(className, name);
    const instance = found instanceof Promise ? await found : found;
    const { promise, resolve, reject: lose } = Promise.withResolvers<T>();
    instance.calls.add(lose);
    try {
      const begun = work(instance.room);
      if (begun instanceof Promise) begun.then(resolve, lose);
      else resolve(begun);
      const result = await promise;
      const committed = instance.context.gate.committed();
      if (committed !== undefined) await committed;
      return result;
    } finally {
      instance.calls.delete(lose);
      instance.usedAt = Date.now();
    }
  }

  #instance(className: string, name: string): Instance | Promise<Instance> {
    const key = `${className}/${name}`;
    const known = this.#instances.get(key);
    if (known !== undefined) {
      known.usedAt = Date.now();
      return known;
    }
    const path = join(this.#options.directory, className, fileName(name));
    const { owned } = this.#options;
    if (owned === undefined) return this.#make(className, name, new Database(path));
    const opening =
      this.#opening.get(key) ??
      owned
        .open(key, path)
        .then((object) => this.#make(className, name, object.database, object))
        .finally(() => this.#opening.delete(key));
    this.#opening.set(key, opening);
    return opening;
  }

  #make(className: string, name: string, database: Database, owned?: OwnedObject): Instance {
    const Room = this.#classOf(className);
    const key = `${className}/${name}`;
    let instance: Instance | undefined;
    const alarm = this.#alarms.of(className, name);
    const context = new NodeContext({
      name,
      database,
      alarm: owned === undefined ? alarm : storedAlarm(alarm, owned),
      handlers: () => instance?.room ?? {},
      failed: (cause) => this.#reset(key, context, cause),
      ...(this.#options.owned && { health: this.#options.owned.health }),
      ...(owned && { gate: (onFailure) => owned.gate(onFailure) }),
    });
    try {
      const room = new Room(context, this.#options.env());
      instance = { owned, room, context, calls: new Set(), usedAt: Date.now() };
      this.#instances.set(key, instance);
      return instance;
    } catch (error) {
      context.end(error);
      throw error;
    }
  }

  /** Drops an instance, because its memory may differ from its file. The next call creates a new instance. */
  #reset(key: string, context: NodeContext, cause: unknown): void {
    const reason = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
    this.#options.log(`resetting ${key}: ${reason}`);
    this.#end(key, context, cause);
  }

  #end(key: string, context: NodeContext, cause: unknown): void {
    const instance = this.#instances.get(key);
    if (instance?.context === context) this.#instances.delete(key);
    context.end(cause);
    for (const lose of instance?.calls ?? []) lose(new Error(`${key} was reset`, { cause }));
  }

  #onAlarmHandled(key: string): void {
    const instance = this.#instances.get(key);
    instance?.owned?.setAlarm(null);
    instance?.context.gate.noted();
  }

  /** Adds alarms of objects that this process owns. An alarm of an object in memory is newer than a stored one. */
  addAlarms(alarms: readonly { key: string; at: number }[]): void {
    for (const { key, at } of alarms) {
      const [className = '', ...name] = key.split('/');
      if (!this.#instances.has(key)) this.#alarms.put(className, name.join('/'), at);
    }
  }

  /** Ends objects that another process owns now: their calls are rejected, and nothing more is stored. */
  resetAll(isLost: (key: string) => boolean, cause: Error): void {
    this.#alarms.drop(isLost);
    for (const [key, opening] of this.#opening)
      if (isLost(key))
        opening.then(
          ({ context }) => this.#end(key, context, cause),
          () => {}, // its callers get the error
        );
    for (const [key, { context }] of this.#instances) if (isLost(key)) this.#end(key, context, cause);
  }

  /** Ends objects after everything that they wrote is stored, so that another process may own them. */
  async release(isReleased: (key: string) => boolean): Promise<void> {
    for (const [key, opening] of this.#opening) if (isReleased(key)) await opening.catch(() => {});
    const released = [...this.#instances].filter(([key]) => isReleased(key));
    for (const [key, { context }] of released) {
      context.gate.commit();
      await context.gate.committed()?.catch(() => {});
      if (this.#instances.get(key)?.context === context) this.#end(key, context, new Error('another process owns it'));
    }
    this.#alarms.drop(isReleased);
  }

  #sweep(): void {
    // Files stay open while the disk is full, because SQLite could not create the two files beside a database that it
    // opens.
    if (storageHealth.failure !== undefined) return;
    const now = Date.now();
    const unused: NodeContext[] = [];
    const connected: { context: NodeContext; fileUsedAt: number }[] = [];
    for (const [key, { context, calls, usedAt }] of this.#instances) {
      const { fileUsedAt } = context;
      const idle = now - usedAt;
      if (calls.size > 0 || idle < FILE_IDLE_MS) continue;
      if (idle >= MEMORY_IDLE_MS && !context.busy) {
        this.#instances.delete(key);
        context.end();
      } else if (fileUsedAt !== undefined && now - fileUsedAt >= FILE_IDLE_MS) {
        if (context.sockets.size === 0) unused.push(context);
        else connected.push({ context, fileUsedAt });
      }
    }
    connected.sort((a, b) => a.fileUsedAt - b.fileUsedAt);
    const { socketFilesMax = SOCKET_FILES_MAX } = this.#options;
    for (const { context } of connected.slice(0, Math.max(0, connected.length - socketFilesMax))) unused.push(context);
    this.#rest(unused);
  }

  #rest(contexts: NodeContext[]): void {
    const until = performance.now() + CLOSING_MS;
    while (performance.now() < until) {
      const context = contexts.pop();
      if (context === undefined) return;
      context.rest();
    }
    setImmediate(() => this.#rest(contexts));
  }

  close(): void {
    clearInterval(this.#sweeper);
    for (const { context } of this.#instances.values()) context.end();
    this.#instances.clear();
    this.#alarms.close();
  }
}

/** An alarm that is also stored beyond this process's disk. */
function storedAlarm(alarm: ObjectAlarm, owned: OwnedObject): ObjectAlarm {
  return {
    get: () => alarm.get(),
    set: (at) => {
      alarm.set(at);
      owned.setAlarm(Math.round(at));
    },
    delete: () => {
      alarm.delete();
      owned.setAlarm(null);
    },
  };
}

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Env } from '../../env.ts';
import type { GatewayObject, ObjectClass, ObjectHandlers } from '../../platform/gateway-object.ts';
import type { ObjectNamespace, ObjectStub } from '../../platform/object-context.ts';
import { storageHealth } from '../../platform/storage/storage-health.ts';
import { clonePlain } from './clone-plain.ts';
import { NodeContext } from './node-context.ts';
import { Alarms } from './object-alarms.ts';
import { fileName } from './object-file-name.ts';
import { Database } from './sqlite.ts';

/** An object that is not used for this time closes its file. */
const FILE_IDLE_MS = 10_000;
/**
 * An object that is not used for this time is dropped from memory, unless it has work in progress. (Durable Objects are
 * evicted after one to two minutes.)
 */
const MEMORY_IDLE_MS = 10 * 60_000;
const SWEEP_MS = 5_000;

interface Instance {
  room: GatewayObject & ObjectHandlers;
  context: NodeContext;
  /** Pending calls of the object. They are rejected if the object is reset. */
  calls: Set<(cause: unknown) => void>;
  usedAt: number;
  resting: boolean;
}

interface HostOptions {
  /** An existing absolute path. */
  directory: string;
  classes: Readonly<Record<string, ObjectClass>>;
  env(): Env;
  log(line: string): void;
}

/**
 * The objects of one process. Each object has its own file, and one instance while it is in use. A call runs in the
 * next turn of the event loop; arguments and results are copied.
 */
export class ObjectHost {
  readonly #options: HostOptions;
  readonly #alarms: Alarms;
  readonly #instances = new Map<string, Instance>();
  readonly #sweeper: NodeJS.Timeout;

  constructor(options: HostOptions) {
    this.#options = options;
    for (const name of Object.keys(options.classes)) mkdirSync(join(options.directory, name), { recursive: true });
    this.#alarms = new Alarms(new Database(join(options.directory, 'alarms.sqlite')), (className, name) =>
      this.#run(className, name, (room) => room.alarm?.()),
    );
    this.#sweeper = setInterval(() => this.#sweep(), SWEEP_MS);
    this.#sweeper.unref();
  }

  /** From now on alarms fire. Called when everything that objects need is ready. */
  start(): void {
    this.#alarms.start();
  }

  namespace<T extends GatewayObject>(className: string): ObjectNamespace<T> {
    const Room = this.#options.classes[className];
    if (Room === undefined) throw new Error(`there is no class ${className}`);
    const methods = Object.getOwnPropertyNames(Room.prototype).filter((name) => name !== 'constructor');
    const host = this;
    class Stub {
      readonly name: string;

      constructor(name: string) {
        this.name = name;
      }

      fetch(request: string | Request, init?: RequestInit): Promise<Response> {
        return host.#fetch(className, this.name, request, init);
      }
    }
    for (const method of methods) {
      if (method === 'fetch') continue;
      const call = function call(this: Stub, ...args: unknown[]) {
        return host.#call(className, this.name, method, args);
      };
      Object.defineProperty(Stub.prototype, method, { value: call, writable: true });
    }
    return { getByName: (name) => new Stub(name) as unknown as ObjectStub<T> };
  }

  async #call(className: string, name: string, method: string, args: unknown[]): Promise<unknown> {
    const copied = args.map(clonePlain);
    const result = await this.#run(className, name, (room) => {
      const called: unknown = Reflect.get(room, method);
      if (typeof called !== 'function') throw new TypeError(`${className} has no method ${method}`);
      return Reflect.apply(called, room, copied) as unknown;
    });
    return clonePlain(result);
  }

  #fetch(className: string, name: string, request: string | Request, init?: RequestInit): Promise<Response> {
    const streams = init?.body instanceof ReadableStream;
    const asked = new Request(request, streams ? { ...init, duplex: 'half' } : init);
    return this.#run(className, name, (room) => {
      if (room.fetch === undefined) throw new TypeError(`${className} has no fetch`);
      return room.fetch(asked);
    });
  }

  /** Runs `work` in its own turn. The result is returned after all writes are committed. */
  async #run<T>(className: string, name: string, work: (room: Instance['room']) => T | Promise<T>): Promise<T> {
    await undefined;
    const instance = this.#instance(className, name);
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

  #instance(className: string, name: string): Instance {
    const key = `${className}/${name}`;
    const known = this.#instances.get(key);
    if (known !== undefined) {
      known.usedAt = Date.now();
      known.resting = false;
      return known;
    }
    const made = this.#make(className, name, key);
    this.#instances.set(key, made);
    return made;
  }

  #make(className: string, name: string, key: string): Instance {
    const Room = this.#options.classes[className];
    if (Room === undefined) throw new Error(`there is no class ${className}`);
    let instance: Instance | undefined;
    const context = new NodeContext({
      name,
      database: new Database(join(this.#options.directory, className, fileName(name))),
      alarm: this.#alarms.of(className, name),
      handlers: () => instance?.room ?? {},
      failed: (cause) => this.#reset(key, context, cause),
    });
    try {
      const room = new Room(context, this.#options.env());
      instance = { room, context, calls: new Set(), usedAt: Date.now(), resting: false };
      return instance;
    } catch (error) {
      context.end(error);
      throw error;
    }
  }

  /** Drops an instance, because its memory may differ from its file. The next call creates a new instance. */
  #reset(key: string, context: NodeContext, cause: unknown): void {
    const instance = this.#instances.get(key);
    const reason = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
    this.#options.log(`resetting ${key}: ${reason}`);
    if (instance?.context === context) this.#instances.delete(key);
    context.end(cause);
    for (const lose of instance?.calls ?? []) lose(new Error(`${key} was reset`, { cause }));
  }

  #sweep(): void {
    // Files stay open while the disk is full, because SQLite could not create the two files beside a database that it
    // opens.
    if (storageHealth.failure !== undefined) return;
    const now = Date.now();
    for (const [key, instance] of this.#instances) {
      const idle = now - instance.usedAt;
      if (instance.calls.size > 0 || idle < FILE_IDLE_MS) continue;
      if (idle >= MEMORY_IDLE_MS && !instance.context.busy) {
        this.#instances.delete(key);
        instance.context.end();
      } else if (!instance.resting && instance.context.sockets.size === 0) {
        instance.resting = true;
        instance.context.rest();
      }
    }
  }

  close(): void {
    clearInterval(this.#sweeper);
    for (const { context } of this.#instances.values()) context.end();
    this.#instances.clear();
    this.#alarms.close();
  }
}

import { DurableObject } from 'cloudflare:workers';
import { after } from '../../after.ts';
import type { Env } from '../../env.ts';
import type { GatewayObject, ObjectClass, ObjectHandlers } from '../../gateway-object.ts';
import { RETRY_MS, storageHealth } from '../../storage/health.ts';
import { withFiles } from './files.ts';
import { WorkerContext } from './worker-context.ts';

interface DurableOptions {
  /** Sockets are held awake where `OBJECTS_STAY` is on: cheaper for each message, and lost with the object. */
  heldAwake?: boolean;
}

/**
 * workerd deletes an alarm when its handler is done. It ends the object where it cannot write that, and with it the socket of the
 * object's node. So the handler is not done before the storage can be written.
 */
async function untilWritable(handled: unknown, { OBJECTS_STAY }: Env): Promise<void> {
  await handled;
  while (OBJECTS_STAY === 'on' && storageHealth.failure !== undefined)
    await new Promise<void>((resolve) => after(RETRY_MS, resolve));
}

/** What the runtime sees of an object: a Durable Object that has the object's methods and passes each on. */
type Durable<T> = new (ctx: DurableObjectState, env: Env) => DurableObject<Env> & Omit<T, 'ctx' | 'env'>;

/** `Room` as a Durable Object class. The runtime calls only what stands on the prototype, so every public method is put there. */
export function durable<T extends GatewayObject>(Room: ObjectClass<T>, options: DurableOptions = {}): Durable<T> {
  class Hosted extends DurableObject<Env> {
    readonly room: T & ObjectHandlers;

    constructor(ctx: DurableObjectState, env: Env) {
      super(ctx, env);
      const handlers: ObjectHandlers = {
        webSocketMessage: (socket, message) => this.room.webSocketMessage?.(socket, message),
        webSocketClose: (socket) => this.room.webSocketClose?.(socket),
      };
      const awake = options.heldAwake === true && env.OBJECTS_STAY === 'on';
      const ring = () => ctx.waitUntil(Promise.resolve(this.room.alarm?.()));
      this.room = new Room(new WorkerContext(ctx, awake ? handlers : undefined, ring), withFiles(env));
    }
  }
  for (const name of Object.getOwnPropertyNames(Room.prototype)) {
    if (name === 'constructor') continue;
    Object.defineProperty(Hosted.prototype, name, {
      value(this: Hosted, ...args: unknown[]): unknown {
        const method: unknown = Reflect.get(this.room, name);
        if (typeof method !== 'function') throw new TypeError(`${name} is no method`);
        const result: unknown = Reflect.apply(method, this.room, args);
        return name === 'alarm' ? untilWritable(result, this.env) : result;
      },
    });
  }
  return Hosted as unknown as Durable<T>;
}

import { DurableObject } from 'cloudflare:workers';
import type { Env } from '../../env.ts';
import type { GatewayObject, ObjectClass, ObjectHandlers } from '../../platform/gateway-object.ts';
import { withFileStore } from './with-file-store.ts';
import { WorkerContext } from './worker-context.ts';

/** The runtime's type of an object: a Durable Object that forwards each method. */
type DurableObjectClass<T> = new (ctx: DurableObjectState, env: Env) => DurableObject<Env> & Omit<T, 'ctx' | 'env'>;

/**
 * Makes `Class` a Durable Object class. The runtime only calls methods on the prototype, so
 * every public method is defined there.
 */
export function toDurableObject<T extends GatewayObject>(Class: ObjectClass<T>): DurableObjectClass<T> {
  class Hosted extends DurableObject<Env> {
    readonly room: T & ObjectHandlers;

    constructor(ctx: DurableObjectState, env: Env) {
      super(ctx, env);
      const runAlarm = () => ctx.waitUntil(Promise.resolve(this.room.alarm?.()));
      this.room = new Class(new WorkerContext(ctx, runAlarm), withFileStore(env));
    }
  }
  for (const name of Object.getOwnPropertyNames(Class.prototype)) {
    if (name === 'constructor') continue;
    Object.defineProperty(Hosted.prototype, name, {
      value(this: Hosted, ...given: unknown[]): unknown {
        const args = name === 'webSocketMessage' ? given.map(asView) : given;
        const method: unknown = Reflect.get(this.room, name);
        if (typeof method !== 'function') throw new TypeError(`${name} is not a method`);
        return Reflect.apply(method, this.room, args) as unknown;
      },
    });
  }
  return Hosted as unknown as DurableObjectClass<T>;
}

/** The runtime passes a binary message as an ArrayBuffer. */
function asView(value: unknown): unknown {
  return value instanceof ArrayBuffer ? new Uint8Array(value) : value;
}

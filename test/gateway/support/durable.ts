/** Objects as their runtime sees them: our stubs' type does not say that these are Durable Objects. */
import * as runtime from 'cloudflare:test';
import type { ObjectStub } from '../../../gateway/platform/object-context.ts';

function native<T>(stub: ObjectStub<T>): DurableObjectStub<undefined> {
  return stub as unknown as DurableObjectStub<undefined>;
}

export function evictDurableObject<T>(
  stub: ObjectStub<T>,
  options?: Parameters<typeof runtime.evictDurableObject>[1],
): Promise<void> {
  return runtime.evictDurableObject(native(stub), options);
}

export function runDurableObjectAlarm<T>(stub: ObjectStub<T>): Promise<boolean> {
  return runtime.runDurableObjectAlarm(native(stub));
}

export function runInDurableObject<T, R>(
  stub: ObjectStub<T>,
  run: (object: object, state: DurableObjectState) => R | Promise<R>,
): Promise<R> {
  return runtime.runInDurableObject(native(stub), run);
}

import type { Env } from '../env.ts';
import type { ObjectContext, ObjectSocket } from './object-context.ts';

/** Base class of all objects. It only stores the context that the host passes in. */
export abstract class GatewayObject {
  protected readonly ctx: ObjectContext;
  protected readonly env: Env;

  constructor(ctx: ObjectContext, env: Env) {
    this.ctx = ctx;
    this.env = env;
  }
}

/** Methods that a host calls if the object has them. */
export interface ObjectHandlers {
  fetch?(request: Request): Response | Promise<Response>;
  alarm?(): void | Promise<void>;
  /** A binary `message` is a view of memory that the host does not write again, and that may contain other messages. */
  webSocketMessage?(socket: ObjectSocket, message: string | Uint8Array): void;
  webSocketClose?(socket: ObjectSocket): void;
  webSocketError?(socket: ObjectSocket): void;
}

export type ObjectClass<T extends GatewayObject = GatewayObject> = new (ctx: ObjectContext, env: Env) => T;

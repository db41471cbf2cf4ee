import type { LimitsObject } from '../../../accounts/limits/limits-object.ts';
import type { Env, PoolState } from '../../../env.ts';
import type { GatewayObject, ObjectClass } from '../../../platform/gateway-object.ts';
import type { ObjectNamespace } from '../../../platform/object-context.ts';
import type { UsageObject } from '../../../usage/hour/usage-hour-object.ts';
import type { ObjectHost } from '../object-host.ts';

/** The parts of a process that sharing its objects needs. */
export interface SharingContext {
  /** Objects that stay in this process: tunnels, metrics. */
  local: ObjectHost;
  classes: Readonly<Record<string, ObjectClass>>;
  env(): Env;
  waitUntil(work: Promise<unknown>): void;
  log(line: string): void;
}

/** Objects that several processes share, as one of these processes sees them. */
export interface SharedObjects {
  readonly processes: NonNullable<Env['PROCESSES']>;
  readonly usage: ObjectNamespace<UsageObject>;
  /** Limits objects, with leases for requests of this process. */
  readonly limits: ObjectNamespace<LimitsObject>;
  namespace<T extends GatewayObject>(className: string): ObjectNamespace<T>;
  pools(): PoolState[];
  /** Joins the other processes. @throws CommandError if the address for links cannot be used */
  open(): Promise<void>;
  close(): Promise<void>;
}

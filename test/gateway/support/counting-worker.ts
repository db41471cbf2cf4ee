/**
 * The real Worker, which counts its calls of other services: D1, R2, its objects and the network. Cloudflare counts
 * them for each invocation; here they are counted together for the Worker and for each class of objects. `GET /__calls`
 * returns the counts and resets them.
 */
import type { Env } from '../../../gateway/env.ts';
import * as gateway from '../../../gateway/index.ts';

/** Number of calls by caller and binding: the caller is `worker` or the binding of an object's class. */
let calls: Record<string, Record<string, number>> = {};

function count(caller: string, binding: string): void {
  const own = calls[caller] ?? {};
  own[binding] = (own[binding] ?? 0) + 1;
  calls[caller] = own;
}

/** Passes everything through. Methods for which `counts` is true are counted; `wrap` may replace their results. */
function counted<T extends object>(
  target: T,
  onCall: () => void,
  counts: (method: string) => boolean = () => true,
  wrap: (result: unknown) => unknown = (result) => result,
): T {
  return new Proxy(target, {
    get(of, name) {
      const value: unknown = Reflect.get(of, name, of);
      if (typeof value !== 'function') return value;
      return (...args: unknown[]) => {
        if (counts(String(name))) onCall();
        const result: unknown = Reflect.apply(value, of, args);
        return result instanceof Promise ? result.then(wrap) : wrap(result);
      };
    },
  });
}

/** `batch` needs the runtime's statements. */
const statements = new WeakMap<object, object>();

function countedStatement(statement: D1PreparedStatement, onCall: () => void): D1PreparedStatement {
  const proxy = counted(
    statement,
    onCall,
    (name) => name !== 'bind',
    // Only `bind` returns a statement.
    (result) => (isStatement(result) ? countedStatement(result, onCall) : result),
  );
  statements.set(proxy, statement);
  return proxy;
}

function isStatement(value: unknown): value is D1PreparedStatement {
  return typeof value === 'object' && value !== null && 'bind' in value;
}

function countedDatabase(database: D1Database, onCall: () => void): D1Database {
  return new Proxy(database, {
    get(of, name) {
      if (name === 'prepare') return (query: string) => countedStatement(of.prepare(query), onCall);
      if (name !== 'batch') return Reflect.get(of, name, of);
      return (list: D1PreparedStatement[]) => {
        // A batch is one call, and Cloudflare limits the number of its statements.
        for (const _ of list) onCall();
        return of.batch(list.map((one) => (statements.get(one) ?? one) as D1PreparedStatement));
      };
    },
  });
}

function countingEnv(env: Env, caller: string): Env {
  const copy: Record<string, unknown> = { ...env };
  for (const [name, binding] of Object.entries(copy)) {
    if (typeof binding !== 'object' || binding === null) continue;
    const onCall = () => count(caller, name);
    if (name === 'DB') copy.DB = countedDatabase(binding as D1Database, onCall);
    else if (name === 'BUCKET') copy.BUCKET = counted(binding, onCall, undefined, (part) => upload(part, onCall));
    else if ('getByName' in binding)
      copy[name] = counted(
        binding,
        () => {},
        undefined,
        (stub) => counted(stub as object, onCall),
      );
    else if ('fetch' in binding) copy[name] = counted(binding, onCall);
  }
  return copy as unknown as Env;
}

/** Each part of an upload is a call. */
function upload(result: unknown, onCall: () => void): unknown {
  const isUpload = typeof result === 'object' && result !== null && 'uploadPart' in result;
  return isUpload ? counted(result, onCall) : result;
}

const { fetch: network } = globalThis;
globalThis.fetch = (...request: Parameters<typeof network>) => {
  count('any', 'network');
  return network(...request);
};

function counting<T extends new (ctx: DurableObjectState, env: Env) => object>(Class: T, name: string): T {
  const Base = Class as unknown as new (ctx: DurableObjectState, env: Env) => object;
  class Counting extends Base {
    constructor(ctx: DurableObjectState, env: Env) {
      super(ctx, countingEnv(env, name));
    }
  }
  return Counting as unknown as T;
}

export const BatchObject = counting(gateway.BatchObject, 'BATCH');
export const BatchQueueObject = counting(gateway.BatchQueueObject, 'BATCH_QUEUE');
export const FactoryObject = counting(gateway.FactoryObject, 'FACTORY');
export const FileSweepObject = counting(gateway.FileSweepObject, 'FILE_SWEEP');
export const LimitsObject = counting(gateway.LimitsObject, 'LIMITS');
export const ObserveObject = counting(gateway.ObserveObject, 'OBSERVE');
export const QueueObject = counting(gateway.QueueObject, 'QUEUE');
export const RegistryObject = counting(gateway.RegistryObject, 'REGISTRY');
export const RegistryRelay = counting(gateway.RegistryRelay, 'RELAY');
export const NotificationObject = counting(gateway.NotificationObject, 'NOTIFICATIONS');
export const ConfirmationObject = counting(gateway.ConfirmationObject, 'CONFIRMATION');
export const ConversationsObject = counting(gateway.ConversationsObject, 'CONVERSATIONS');
export const StatusObject = counting(gateway.StatusObject, 'STATUS');
export const StoredResponsesObject = counting(gateway.StoredResponsesObject, 'RESPONSES');
export const TunnelObject = counting(gateway.TunnelObject, 'TUNNEL');
export const UsageObject = counting(gateway.UsageObject, 'USAGE');

let countedEnv: Env | undefined;
export default {
  async fetch(request: Request, env: Env, ctx: ExecutionContext): Promise<Response> {
    if (new URL(request.url).pathname !== '/__calls') {
      countedEnv ??= countingEnv(env, 'worker');
      return gateway.default.fetch(request, countedEnv, ctx);
    }
    const taken = calls;
    calls = {};
    return Response.json(taken);
  },
};

/** The Worker: the app's front on Cloudflare, and the Durable Objects that its bindings name. */
import { LimitsObject as Limits } from './accounts/limits/limits-object.ts';
import { app } from './app.ts';
import { BatchObject as Batch } from './batch/batch-object.ts';
import { BatchQueueObject as BatchQueue } from './batch/leases/queue-object.ts';
import type { Env } from './env.ts';
import { FactoryObject as Factory } from './factory/object.ts';
import { isResourcePath } from './files/paths.ts';
import { FileSweepObject as FileSweep } from './files/sweep-object.ts';
import { durable } from './hosts/worker/durable.ts';
import { withFiles } from './hosts/worker/files.ts';
import { responseOf } from './http.ts';
import { ObserveObject as Observe } from './observe/object.ts';
import { handleOpenAI } from './openai/handle.ts';
import { QueueObject as Queue } from './queue/object.ts';
import { RegistryRelay as Relay } from './registry/gossip/relay.ts';
import { RegistryObject as Registry } from './registry/object.ts';
import { TunnelObject as Tunnel } from './tunnel/object.ts';
import { UsageObject as Usage } from './usage/object.ts';

/** Without what a URL object costs. */
function pathOf(url: string): string {
  const from = url.indexOf('/', url.indexOf('://') + 3);
  const query = url.indexOf('?', from);
  return query === -1 ? url.slice(from) : url.slice(from, query);
}

/** Requests to models are most of the traffic and need nothing of the router: they go past it. */
export default {
  async fetch(request: Request, env: Env, ctx: ExecutionContext): Promise<Response> {
    withFiles(env);
    if (request.method !== 'POST') return app.fetch(request, env, ctx);
    const pathname = pathOf(request.url);
    if (!pathname.startsWith('/v1/') || isResourcePath(pathname)) return app.fetch(request, env, ctx);
    return responseOf(await handleOpenAI(request, pathname, env, ctx));
  },
};
/** Their names stand in wrangler.toml. */
export class BatchObject extends durable(Batch) {}
export class BatchQueueObject extends durable(BatchQueue) {}
export class FactoryObject extends durable(Factory) {}
export class FileSweepObject extends durable(FileSweep) {}
export class LimitsObject extends durable(Limits) {}
export class ObserveObject extends durable(Observe) {}
export class QueueObject extends durable(Queue) {}
export class RegistryObject extends durable(Registry) {}
export class RegistryRelay extends durable(Relay) {}
export class TunnelObject extends durable(Tunnel) {}
export class UsageObject extends durable(Usage) {}

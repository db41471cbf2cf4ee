/** The entry point of the Worker on Cloudflare: the app, and the Durable Objects that its bindings name. */
import { LimitsObject as Limits } from './accounts/limits/limits-object.ts';
import { ConfirmationObject as Confirmation } from './accounts/login/confirmation-object.ts';
import { app } from './app.ts';
import { BatchObject as Batch } from './batch/batch-object.ts';
import { BatchQueueObject as BatchQueue } from './batch/leases/batch-queue-object.ts';
import { CircuitObject as Circuit } from './circuit/circuit-object.ts';
import { ConversationsObject as Conversations } from './conversations/conversations-object.ts';
import type { Env } from './env.ts';
import { FactoryObject as Factory } from './factory/factory-object.ts';
import { isResourcePath } from './files/is-resource-path.ts';
import { FileSweepObject as FileSweep } from './files/sweep-object.ts';
import { toDurableObject } from './hosts/worker/to-durable-object.ts';
import { withFileStore } from './hosts/worker/with-file-store.ts';
import { responseOf } from './http/http-request.ts';
import { NotificationObject as Notification } from './notifications/notification-object.ts';
import { ObserveObject as Observe } from './observe/observe-object.ts';
import { handleOpenAI } from './openai/handle-openai.ts';
import { StoredResponsesObject as StoredResponses } from './openai/stored-responses.ts';
import { QueueObject as Queue } from './queue/queue-object.ts';
import { RegistryObject as Registry } from './registry/registry-object.ts';
import { SnapshotCacheObject } from './registry/snapshot-cache-object.ts';
import { StatusObject as Status } from './status/status-object.ts';
import { TunnelObject as Tunnel } from './tunnel/tunnel-object.ts';
import { UsageObject as Usage } from './usage/hour/usage-hour-object.ts';

/** Returns the path of a URL without creating a URL object, which is expensive. */
function pathOf(url: string): string {
  const from = url.indexOf('/', url.indexOf('://') + 3);
  const query = url.indexOf('?', from);
  return query === -1 ? url.slice(from) : url.slice(from, query);
}

/** Requests to models are most of the traffic and do not need the router, so they bypass it. */
export default {
  async fetch(request: Request, env: Env, ctx: ExecutionContext): Promise<Response> {
    withFileStore(env);
    if (request.method !== 'POST') return app.fetch(request, env, ctx);
    const pathname = pathOf(request.url);
    if (!pathname.startsWith('/v1/') || isResourcePath(pathname)) return app.fetch(request, env, ctx);
    return responseOf(await handleOpenAI(request, pathname, env, ctx));
  },
};
/** Durable Objects under the class names that wrangler.toml contains. */
export class BatchObject extends toDurableObject(Batch) {}
export class BatchQueueObject extends toDurableObject(BatchQueue) {}
export class CircuitObject extends toDurableObject(Circuit) {}
export class ConfirmationObject extends toDurableObject(Confirmation) {}
export class FactoryObject extends toDurableObject(Factory) {}
export class FileSweepObject extends toDurableObject(FileSweep) {}
export class LimitsObject extends toDurableObject(Limits) {}
export class NotificationObject extends toDurableObject(Notification) {}
export class ObserveObject extends toDurableObject(Observe) {}
export class QueueObject extends toDurableObject(Queue) {}
export class RegistryObject extends toDurableObject(Registry) {}
export class RegistryRelay extends toDurableObject(SnapshotCacheObject) {}
export class StoredResponsesObject extends toDurableObject(StoredResponses) {}
export class ConversationsObject extends toDurableObject(Conversations) {}
export class StatusObject extends toDurableObject(Status) {}
export class TunnelObject extends toDurableObject(Tunnel) {}
export class UsageObject extends toDurableObject(Usage) {}

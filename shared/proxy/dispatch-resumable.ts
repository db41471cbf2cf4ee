/** Finds the node on which a stream continues after its previous node is gone, along the request's route. */

import type { ResponseStream } from '../attempts/started-response.ts';
import { QueueEntry } from '../queue/queue-entry.ts';
import { runQueued } from '../queue/run-queued.ts';
import { type ReadableResponse, resumable } from '../resume/continued-response.ts';
import type { ResumeHost } from '../resume/find-successor.ts';
import type { NodeChoice } from '../routing/choose-node.ts';
import { compatibilityScope, hasCompatible, incompatibleSessions } from '../routing/revision-match.ts';
import { isTrusted } from '../routing/trusted-providers.ts';
import { type DispatchResult, dispatchQueued, QueuedDispatch, queueScope } from './dispatch-queued.ts';
import { NULL_RECORDER } from './null-recorder.ts';
import type { Route } from './proxy-host.ts';
import type { ProxyRequest } from './proxy-http-types.ts';
import type { RequestContext } from './request-context.ts';
import { contextForModel, RouteAttempts } from './route-attempts.ts';

/**
 * True if a broken stream may continue on another node. The request's header takes precedence over the key's setting.
 */
export function allowsResuming(request: ProxyRequest, { resumes }: Pick<Route, 'resumes'>): boolean {
  const header = request.header('x-otela-resume');
  return header === null || header === undefined ? resumes : header === '1';
}

/** Like `dispatchQueued`, but the response can outlive its node. */
export async function dispatchResumable<C>(
  context: RequestContext<C>,
): Promise<ReadableResponse<NodeChoice, ResponseStream>> {
  const response = await dispatchQueued(context);
  const share = context.host.bodies.resumable.share();
  context.request.client.on(() => share.release());
  const own = contextForModel(context, response.choice);
  return resumable(response, own, resumeHost(response, own), share);
}

function resumeHost<C>({ choice }: DispatchResult, context: RequestContext<C>): ResumeHost<NodeChoice, ResponseStream> {
  const { host } = context;
  const { clock, memory } = host;
  const { model } = choice;
  const route: Route = { ...context.route, fallbacks: [] };
  const { nodes, trust } = route;
  const first = nodes.get(choice.node.session)?.models.find(({ id }) => id === model);
  const newEntry = (queues: boolean) =>
    new QueueEntry({
      busyNodes: memory.busy,
      queues,
      isWorthWaiting: () => hasCompatible(nodes.model(model), model, first, (entry) => isTrusted(trust, entry)),
      repeatable: () => true,
      retriesMax: route.retriesMax,
      begun: true,
    });
  /** The queue entry of the current search for a node. A stream has at most one search at a time. */
  let entry = newEntry(route.waitMs > 0);
  return {
    attempts: (changed) => {
      const own = { ...context, ...changed, route, admittedAt: clock.steadyNow() };
      if (changed.endpoint === context.endpoint) return new RouteAttempts({ ...own, entry });
      // Asks a node how its engine tokenizes a text. This does not count as an attempt.
      return new RouteAttempts({ ...own, entry: newEntry(false), record: NULL_RECORDER, engineAttempts: { count: 0 } });
    },
    unlike: () => incompatibleSessions(nodes.model(model), model, first),
    unpaid: () => ({ name: clock.newId(), receipt: route.unpaidReceipt(model) }),
    inTurn: (tryNodes, rejected) => {
      entry = newEntry(route.waitMs > 0);
      // Each set of usable nodes has its own scope, because a turn that this stream cannot use must not delay requests
      // that can use it.
      const scope = () => `${queueScope(context)}${compatibilityScope(first)} ${rejected().join(' ')}`.trimEnd();
      const refreshed = () => Promise.resolve(host.refresh([model])).then(tryNodes);
      return runQueued(new QueuedDispatch({ ...context, waitMs: route.waitMs, route, entry }, refreshed, scope));
    },
    busy: () => entry.busy.length > 0,
    pingMs: host.pingMs,
    timer: clock.timer,
  };
}

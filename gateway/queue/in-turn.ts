/** The gateway's queues: one object for each model, asked by requests that find no free node. */

import type { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import type { QueueEntry } from '../../shared/queue/queue-entry.ts';
import * as loop from '../../shared/queue/run-queued.ts';
import type { PlaceAnswer } from '../../shared/queue/wait-queue.ts';
import type { Priority } from '../../shared/routing/fair-queue.ts';
import { AttemptError } from '../../shared/upstream/attempt-error.ts';
import type { Account } from '../accounts/account.ts';
import type { QueueSettings } from '../accounts/queue-settings.ts';
import type { Env } from '../env.ts';
import type { Note } from '../observe/note.ts';
import { steadyNow } from '../steady-clock.ts';
import type { UsageRow } from '../usage/row.ts';
import type { QueuePlace } from './object.ts';
import { waitingHere } from './waiting-here.ts';

/** An object that throws is being replaced. */
const ASK_AGAIN_MS = 250;

export interface QueuedRequest<D> {
  env: Env;
  /** Of the request, ours: names its place. */
  name: string;
  model: string;
  account: Pick<Account, 'keyId' | 'projectId'>;
  priority: Priority;
  settings: QueueSettings;
  /** Of a request whose client is pinged meanwhile. */
  streaming: boolean;
  /** Names the nodes that it may go to: who waits for the same ones waits in one line. */
  scope(): string;
  /** Of its body in memory. */
  bytes(): number;
  waiter: QueueEntry;
  note: Pick<Note, 'queues'>;
  /** Asks nodes, those of now. Rejects with what the client is told where none answers. */
  tryNodes(): Promise<D>;
  /** What is to be on record should its client leave while it waits; undefined: nothing. */
  ifLeft(): UsageRow | undefined;
  /** Aborted when the client leaves. */
  signal(): AbortSignal;
  leaving: Pick<ClientDisconnect, 'left'>;
}

/** @throws ApiError of the last try; 429 queue_full; 503 no_capacity after the longest wait */
export function inTurn<D>(request: QueuedRequest<D>): Promise<D> {
  const { model, waiter, leaving } = request;
  return loop.runQueued({
    model,
    waiter,
    waitMs: longestWait(request.settings, request.streaming),
    behind: () => waitingHere.has(model, request.scope),
    wait: async (until, back) => {
      const waited = request.note.queues();
      const answer = await queued(request, { until, back });
      waited(answer.kind);
      return answer;
    },
    tryNodes: () => request.tryNodes(),
    left: () => leaving.left,
    now: steadyNow,
  });
}

export function longestWait({ unary_ms, stream_ms }: QueueSettings, streaming: boolean): number {
  return streaming ? stream_ms : unary_ms;
}

/** One wait in the queue, from entering to whatever ends it. */
async function queued<D>(request: QueuedRequest<D>, wait: { until: number; back: boolean }): Promise<PlaceAnswer> {
  const { model } = request;
  const leave = waitingHere.enter(model, request.scope(), request.bytes());
  if (leave === undefined) return { kind: 'full', retryAfterMs: 1_000 };
  // A client that leaves ends its request where it stands: no `finally` runs then, this does.
  const signal = request.signal();
  signal.addEventListener('abort', leave, { once: true });
  try {
    return await answerOf(request, wait);
  } finally {
    signal.removeEventListener('abort', leave);
    leave();
  }
}

async function answerOf<D>(request: QueuedRequest<D>, { until, back }: { until: number; back: boolean }) {
  const { env, model } = request;
  const signal = request.signal();
  const place = placeOf(request);
  for (let again = back; ; again = false) {
    const waitMs = until - steadyNow();
    if (waitMs <= 0) return { kind: 'late' } as const;
    const asked: QueuePlace = { ...place, waitMs, back: again };
    try {
      const init = { method: 'POST', body: JSON.stringify(asked), signal };
      const response = await env.QUEUE.getByName(model).fetch('https://queue/', init);
      return (await response.json()) as PlaceAnswer;
    } catch {
      if (signal.aborted) throw new AttemptError('cancelled', 'the client left');
      await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS));
    }
  }
}

function placeOf<D>(request: QueuedRequest<D>): Omit<QueuePlace, 'waitMs' | 'back'> {
  const { name, account, priority, settings, waiter } = request;
  const { keyId, projectId } = account;
  const weight =
    projectId !== undefined && Object.hasOwn(settings.weights, projectId) ? settings.weights[projectId] : 1;
  return {
    name,
    project: projectId ?? `key ${keyId}`,
    key: keyId,
    scope: request.scope(),
    priority,
    weight: weight ?? 1,
    busy: waiter.busy,
    places: settings.places,
    begun: waiter.begun,
    ifLeft: request.ifLeft(),
    queuedMs: waiter.queuedMs,
  };
}

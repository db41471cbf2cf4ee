/** The client of the queue objects (one per model). Called by requests that find no free node. */

import { AttemptError } from '../../shared/attempts/attempt-error.ts';
import { findColdModel } from '../../shared/proxy/cold-model.ts';
import type { QueueRequest } from '../../shared/proxy/proxy-host.ts';
import type { TurnResult } from '../../shared/queue/wait-queue.ts';
import type { Account } from '../accounts/account.ts';
import type { Env } from '../env.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { stoppingError } from '../platform/stopping-error.ts';
import type { QueueSettings } from '../settings/queue-settings.ts';
import { abandonedRowDraft } from '../usage/refusal-writer.ts';
import { localWaiters } from './local-waiters.ts';
import type { QueuedTurnRequest } from './queue-object.ts';

/**
 * While a model starts: the maximum share of its queue slots per key. A start takes minutes, in which other keys need
 * slots too.
 */
const KEY_SHARE = 0.5;
/** Delay before a retry. An object that throws is being replaced. */
const RETRY_MS = 250;

/** Returns the longest wait. `streaming`: the client gets pings meanwhile, so it may wait longer. */
export function longestWait({ unary_ms, stream_ms }: QueueSettings, streaming: boolean): number {
  return streaming ? stream_ms : unary_ms;
}

interface QueueWait {
  env: Env;
  /** The current settings: a view that arrived while the request waited may have newer ones. */
  settings: QueueSettings;
  /** Aborted when the client disconnects. */
  signal: AbortSignal;
}

interface QueuedCaller {
  readonly account: Account;
  readonly untracked: boolean;
}

/**
 * Waits in the queue once, until the request's turn or the end of the wait.
 * @throws AttemptError `cancelled` if the client disconnected, ApiError 503 if this process stops and the client has
 * received nothing
 */
export async function waitForTurn(queued: QueueRequest<QueuedCaller>, waiting: QueueWait): Promise<TurnResult> {
  const leave = localWaiters.enter(queued.model, queued.scope, queued.bytes);
  if (leave === undefined) return { kind: 'full', retryAfterMs: 1_000 };
  // A disconnection may stop the request's work at any point. Then no `finally` runs, but this listener does.
  const { signal } = waiting;
  signal.addEventListener('abort', leave, { once: true });
  try {
    return await answerOf(queued, waiting);
  } finally {
    signal.removeEventListener('abort', leave);
    leave();
  }
}

async function answerOf(queued: QueueRequest<QueuedCaller>, { env, signal, settings }: QueueWait): Promise<TurnResult> {
  const place = placeOf(queued, settings);
  const isRefused = () => env.STOPPING?.aborted === true && !queued.begun;
  for (let { back } = queued; ; back = false) {
    if (isRefused()) throw stoppingError();
    const waitMs = queued.until - steadyNow();
    if (waitMs <= 0) return { kind: 'late' };
    const asked: QueuedTurnRequest = { ...place, waitMs, back };
    try {
      const init = { method: 'POST', body: JSON.stringify(asked), signal };
      const response = await env.QUEUE.getByName(queued.model).fetch('https://queue/', init);
      const result = (await response.json()) as TurnResult;
      if (result.kind === 'turn' || !isRefused()) return result;
    } catch {
      if (signal.aborted) throw new AttemptError('cancelled', 'the client disconnected');
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

function placeOf(
  queued: QueueRequest<QueuedCaller>,
  { weights, places }: QueueSettings,
): Omit<QueuedTurnRequest, 'waitMs' | 'back'> {
  const { name, scope, priority, busy, begun, queuedMs, caller, info } = queued;
  const { keyId, projectId } = caller.account;
  const weight = projectId !== undefined && Object.hasOwn(weights, projectId) ? weights[projectId] : 1;
  return {
    name,
    project: projectId ?? `key ${keyId}`,
    key: keyId,
    scope,
    priority,
    weight: weight ?? 1,
    busy,
    places,
    ...(findColdModel(queued.route) !== undefined && { placesOfKey: Math.max(1, Math.floor(places * KEY_SHARE)) }),
    begun,
    ifLeft: begun ? undefined : abandonedRowDraft(info), // if a stream has begun, the usage record of its first node exists
    queuedMs,
  };
}

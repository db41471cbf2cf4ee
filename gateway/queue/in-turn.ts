/** A request that finds no free node waits for its turn and tries again, until it is served or has waited too long. */
import { PathError } from '../../shared/asking/path-error.ts';
import { ApiError, retryAfter } from '../../shared/openai/errors.ts';
import type { Priority } from '../../shared/routing/fair-queue.ts';
import type { Trust } from '../../shared/routing/trust.ts';
import type { Account } from '../accounts/account.ts';
import type { QueueSettings } from '../accounts/queue-settings.ts';
import type { Env } from '../env.ts';
import type { Note } from '../observe/note.ts';
import { waitingHere } from './here.ts';
import type { PlaceAnswer, PlaceRequest } from './place.ts';
import type { Waiter } from './waiter.ts';

/** An object that throws is being replaced. */
const ASK_AGAIN_MS = 250;

export interface Turnwise<D> {
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
  waiter: Waiter;
  note: Pick<Note, 'queues'>;
  /** Asks nodes, those of now. Rejects with what the client is told where none answers. */
  tryNodes(): Promise<D>;
  /** Aborted when the client leaves. */
  signal: AbortSignal;
}

/** @throws ApiError of the last try; 429 queue_full; 503 no_capacity after the longest wait */
export async function inTurn<D>(request: Turnwise<D>): Promise<D> {
  const { waiter, model, signal } = request;
  const waitMs = longestWait(request.settings, request.streaming);
  let until: number | undefined;
  let first = waitMs === 0 || !waitingHere.has(model, request.scope);
  for (let back = false; ; back = true) {
    if (first) {
      try {
        return await request.tryNodes();
      } catch (error) {
        if (signal.aborted || !waiter.mayWait(error)) throw error;
      }
    }
    const now = Date.now();
    until ??= now + waitMs;
    const waited = request.note.queues();
    const answer = await queued(request, { until, back: back && first });
    waited(answer.kind);
    waiter.queuedMs += Date.now() - now;
    first = true;
    switch (answer.kind) {
      case 'turn':
        waiter.begin(answer);
        break;
      case 'full':
        throw queueFull(model, answer.retryAfterMs);
      case 'late':
        throw tooLate(model, waitMs);
    }
  }
}

export function longestWait({ unary_ms, stream_ms }: QueueSettings, streaming: boolean): number {
  return streaming ? stream_ms : unary_ms;
}

/** One wait in the queue, from entering to whatever ends it. */
async function queued<D>(request: Turnwise<D>, wait: { until: number; back: boolean }): Promise<PlaceAnswer> {
  const { model, signal } = request;
  const leave = waitingHere.enter(model, request.scope(), request.bytes());
  if (leave === undefined) return { kind: 'full', retryAfterMs: 1_000 };
  // A client that leaves ends its request where it stands: no `finally` runs then, this does.
  signal.addEventListener('abort', leave, { once: true });
  try {
    return await answerOf(request, wait);
  } finally {
    signal.removeEventListener('abort', leave);
    leave();
  }
}

async function answerOf<D>(request: Turnwise<D>, { until, back }: { until: number; back: boolean }) {
  const { env, model, signal } = request;
  const place = placeOf(request);
  for (let again = back; ; again = false) {
    const waitMs = until - Date.now();
    if (waitMs <= 0) return { kind: 'late' } as const;
    const asked: PlaceRequest = { ...place, waitMs, back: again };
    try {
      const init = { method: 'POST', body: JSON.stringify(asked), signal };
      const response = await env.QUEUE.getByName(model).fetch('https://queue/', init);
      return (await response.json()) as PlaceAnswer;
    } catch {
      if (signal.aborted) throw new PathError('cancelled', 'the client left');
      await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS));
    }
  }
}

function placeOf<D>(request: Turnwise<D>): Omit<PlaceRequest, 'waitMs' | 'back'> {
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
  };
}

const scopes = new WeakMap<Trust, string>();

/** Whose nodes a request may go to, as a name. */
export function scopeOf(trust: Trust): string {
  let scope = scopes.get(trust);
  if (scope === undefined) {
    const { own, providers, deleted, regions, tiers } = trust;
    const named = providers === 'admitted' ? providers : [...providers].sort();
    const sorted = (set: ReadonlySet<string> | undefined) => set && [...set].sort();
    scope = JSON.stringify([own, named, sorted(deleted), sorted(regions), sorted(tiers)]);
    scopes.set(trust, scope);
  }
  return scope;
}

function queueFull(model: string, retryAfterMs: number): ApiError {
  const message = `Too many requests wait for '${model}' already; try again shortly.`;
  return new ApiError('queue_full', message, { headers: retryAfter(retryAfterMs) });
}

function tooLate(model: string, waitMs: number): ApiError {
  const seconds = Math.round(waitMs / 1000);
  return new ApiError('no_capacity', `No node for '${model}' became free within ${seconds} s; try again later.`);
}

/** The wait for a model that is still being loaded, and the error that a client gets for it. */
import { ApiError, retryAfter } from '../openai/api-errors.ts';
import { isServedBy } from '../routing/candidates.ts';
import { type ModelStart, modelStart, remainingMs } from '../routing/loading-models.ts';
import { isServing, type NodeIndex } from '../routing/node-index.ts';
import type { Trust } from '../routing/trusted-providers.ts';

/** Value of `retry-after` if no earlier start is known from which it can be estimated. */
const RETRY_AFTER_DEFAULT_MS = 30_000;

/**
 * How far the start of the route's first loading model has come. Undefined if one of the route's models is served, or
 * if none is loading.
 */
export function findModelStart(
  nodes: Pick<NodeIndex, 'model'>,
  models: readonly string[],
  trust: Trust,
  now: number,
): LocatedModelStart | undefined {
  // Nearly every request ends here. What follows reads all sessions of the models.
  if (models.some((model) => isServedBy(nodes.model(model), trust))) return undefined;
  const starts = models.map((model) => ({ model, start: modelStart(nodes.model(model), trust, now) }));
  const isServed = models.some((model, at) => starts[at]?.start === undefined && isServing(nodes.model(model)));
  const first = starts.find(({ start }) => start !== undefined);
  if (isServed || first?.start === undefined) return undefined;
  return { model: first.model, ...first.start };
}

interface LocatedModelStart extends ModelStart {
  model: string;
}

/** True if the start is known to end within the wait. A request then waits for the model as it waits for any node. */
export function endsWithin(start: ModelStart, waitMs: number): boolean {
  const left = remainingMs(start);
  return left !== undefined && left <= waitMs;
}

/** Like `endsWithin`, but true if the start's length is unknown. For a wait that the request itself sets. */
export function mayEndWithin(start: ModelStart, waitMs: number): boolean {
  const left = remainingMs(start);
  return waitMs > 0 && (left === undefined || left <= waitMs);
}

export function modelStartingError(start: LocatedModelStart): ApiError {
  const { model, nodes, runningMs, usualMs } = start;
  const left = remainingMs(start);
  const where = nodes === 1 ? 'a node' : `${nodes} nodes`;
  const usual = usualMs === undefined ? 'the usual time is not known yet' : `it usually takes ${seconds(usualMs)}`;
  const message = `The model '${model}' has been loading at ${where} for ${seconds(runningMs)}; ${usual}. Try again.`;
  return new ApiError('model_starting', message, {
    param: 'model',
    headers: retryAfter(left ?? RETRY_AFTER_DEFAULT_MS),
  });
}

function seconds(ms: number): string {
  return `${Math.round(ms / 1000)} s`;
}

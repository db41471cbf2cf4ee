import { endpointById } from '../../shared/openai/endpoints.ts';
import { LEFT_ERROR } from '../../shared/proxy/client-disconnect.ts';
import type { Env } from '../env.ts';
import { telemetry } from '../telemetry-sink.ts';
import { endpointName } from './names.ts';
import type { Note } from './note.ts';

/** A client chooses the model's name: longer ones are cut. */
const MODEL_MAX = 128;

/**
 * Which requests get a line: `all`, those that failed (`error`: answered 5xx, or broken off; a client that
 * left is no failure), or none (`off`).
 */
type RequestLog = 'all' | 'error' | 'off';

const DEFAULT: RequestLog = 'error';

/** One line of JSON per request: who, what, where, how long, how it ended. Never a prompt, a key, an address or an answer. */
export function logLine(env: Pick<Env, 'REQUEST_LOG'>, note: Note, totalMs: number, firstMs: number | undefined): void {
  const wanted = env.REQUEST_LOG ?? DEFAULT;
  if (wanted === 'off' || (wanted === 'error' && !hasFailed(note))) return;
  const { requestId, startedAt, name, caller, endpoint = 0, model = '', streamed = false } = note.seen;
  const line = {
    event: 'request',
    at: new Date(startedAt).toISOString(),
    request_id: requestId,
    usage_id: name === requestId ? undefined : name,
    trace_id: note.traceId,
    endpoint: endpointName(endpointById(endpoint)) || undefined,
    model: model.slice(0, MODEL_MAX) || undefined,
    served_model: note.served === '' || note.served === model ? undefined : note.served,
    stream: streamed,
    key: caller?.account.keyId,
    node: note.node || undefined,
    provider: note.provider || undefined,
    attempts: note.attempts,
    queued_ms: note.queuedMs || undefined,
    status: note.status,
    error: note.error || undefined,
    failed_at: note.failedAt,
    first_ms: firstMs,
    total_ms: totalMs,
  };
  telemetry.sink?.event(line);
  console.log(JSON.stringify(line));
}

function hasFailed({ status, error }: Note): boolean {
  return status >= 500 || (status < 400 && error !== '' && error !== LEFT_ERROR);
}

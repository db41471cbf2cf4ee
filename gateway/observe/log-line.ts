import { endpointById } from '../../shared/openai/endpoints.ts';
import { LEFT_ERROR } from '../../shared/proxy/client-disconnect.ts';
import type { RequestInfo } from '../../shared/proxy/proxy-host.ts';
import type { Account } from '../accounts/account.ts';
import type { Env } from '../env.ts';
import type { RequestLogMode } from '../environment-checks.ts';
import { telemetrySink } from '../platform/telemetry-sink.ts';
import { endpointLabel } from './metric-labels.ts';

/** Maximum characters of a model's name in a line, because a client chooses the name. */
const MODEL_MAX = 128;

const DEFAULT: RequestLogMode = 'error';

/** The facts of a request that its log line contains. */
interface LoggedFacts {
  readonly seen: Readonly<RequestInfo<{ readonly account: Pick<Account, 'keyId'> }>>;
  readonly traceId: string | undefined;
  readonly served: string;
  readonly node: string;
  readonly provider: string;
  readonly attempts: number;
  readonly queuedMs: number;
  readonly status: number;
  readonly error: string;
  readonly failedAt: string | undefined;
}

/**
 * Formats one line of JSON per request: key id, model, node, durations and outcome. It never contains a prompt, a key's
 * secret, an address or a response.
 */
export function logLine(
  env: Pick<Env, 'REQUEST_LOG'>,
  log: LoggedFacts,
  totalMs: number,
  firstMs: number | undefined,
): void {
  const wanted = env.REQUEST_LOG || DEFAULT;
  if (wanted === 'off' || (wanted === 'error' && !hasFailed(log))) return;
  const { clientRequestId: requestId, startedAt, name, caller, endpoint = 0, model = '', streamed = false } = log.seen;
  const line = {
    event: 'request',
    at: new Date(startedAt).toISOString(),
    request_id: requestId,
    usage_id: name === requestId ? undefined : name,
    trace_id: log.traceId,
    endpoint: endpointLabel(endpointById(endpoint)) || undefined,
    model: model.slice(0, MODEL_MAX) || undefined,
    served_model: log.served === '' || log.served === model ? undefined : log.served,
    stream: streamed,
    key: caller?.account.keyId,
    node: log.node || undefined,
    provider: log.provider || undefined,
    attempts: log.attempts,
    queued_ms: log.queuedMs || undefined,
    status: log.status,
    error: log.error || undefined,
    failed_at: log.failedAt,
    first_ms: firstMs,
    total_ms: totalMs,
  };
  telemetrySink.sink?.event(line);
  console.log(JSON.stringify(line));
}

function hasFailed({ status, error }: LoggedFacts): boolean {
  return status >= 500 || (status < 400 && error !== '' && error !== LEFT_ERROR);
}

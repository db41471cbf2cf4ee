import type { Endpoint } from '../../shared/openai/endpoints.ts';

/** Of an endpoint in labels and logs: its path without `/v1/`; empty for paths that are none. */
export function endpointLabel(endpoint: Pick<Endpoint, 'path'> | undefined): string {
  return endpoint === undefined ? '' : endpoint.path.slice('/v1/'.length);
}

/** What OpenTelemetry has a name for; the others go by their own (`gen_ai.operation.name` allows it). */
const OPERATIONS: Readonly<Record<string, string>> = {
  'chat/completions': 'chat',
  responses: 'chat',
  messages: 'chat',
  completions: 'text_completion',
  embeddings: 'embeddings',
};

export function operationLabel(endpoint: Pick<Endpoint, 'path'> | undefined): string {
  const name = endpointLabel(endpoint);
  return OPERATIONS[name] ?? name;
}

import type { Endpoint } from '../../shared/openai/endpoints.ts';

/** Returns an endpoint's name in labels and logs: its path without `/v1/`; empty for an unknown path. */
export function endpointLabel(endpoint: Pick<Endpoint, 'path'> | undefined): string {
  return endpoint === undefined ? '' : endpoint.path.slice('/v1/'.length);
}

/** OpenTelemetry's names of operations. Other endpoints use their own names, which `gen_ai.operation.name` allows. */
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

/** `GET /v1/otela/seal` at the ingress: nodes that a client may seal a request to, as a gateway has it. */
import { methodNotAllowed } from '../../shared/openai/errors.ts';
import type { ProxyRequest, ProxyResponse } from '../../shared/proxy/message.ts';
import { askedModel, SEAL_MAX_AGE_S, sealCandidates } from '../../shared/proxy/seal-candidates.ts';
import type { IngressHost } from './ingress-host.ts';

export const SEAL_PATH = '/v1/otela/seal';

/** @throws ApiError as a request in clear would be refused */
export function answerSeal(
  request: ProxyRequest,
  query: URLSearchParams,
  host: IngressHost,
  requestId: string,
): ProxyResponse {
  if (request.method !== 'GET') throw methodNotAllowed(request.method, SEAL_PATH, ['GET']);
  const route = host.resolve(request, host.identify(request), askedModel(query.get('model')));
  const listed = sealCandidates({ ...route, waitMs: 0 }, host, query.getAll('provider'));
  const body = Buffer.from(JSON.stringify(listed));
  const headers = {
    'content-type': 'application/json',
    'cache-control': `private, max-age=${SEAL_MAX_AGE_S}`,
    'x-request-id': requestId,
  };
  return { status: 200, headers, body };
}

/**
 * Predicts the kind of an arriving request, for models with kinds in their settings. The response lengths of each key
 * are learned per process. On Workers, an isolate learns only from the tunnels that it carries.
 */
import { endpointById, findEndpoint } from '../../shared/openai/endpoints.ts';
import { LengthPredictor } from '../../shared/routing/kinds/length-predictor.ts';
import { classifyRequest } from '../../shared/routing/kinds/request-kind.ts';
import type { RoutedRequest } from '../../shared/routing/routing-policy.ts';
import { type GatewaySettings, settingsOf } from '../accounts/gateway-settings.ts';
import type { HttpRequest } from '../http/http-request.ts';

/**
 * Response lengths by key and model; LengthPredictor bounds their number. A key without earlier responses gets no
 * estimate from other keys.
 */
const answers = new LengthPredictor('senders');

/** Name of a history: the key and the model, because responses to one key differ in length between models. */
const senderOf = (model: string, keyId: string): string => `${keyId} ${model}`;

/** Returns the name of the request's kind. Undefined: the model has no kinds. */
export function kindAtArrival(
  settings: GatewaySettings,
  { model, inputTokens: input, maxTokens }: RoutedRequest,
  request: Pick<HttpRequest, 'method' | 'url'>,
  keyId: string,
): string | undefined {
  const { kinds } = settingsOf(settings, model);
  if (kinds === undefined) return undefined;
  const endpoint = findEndpoint(request.method, new URL(request.url).pathname);
  const path = endpoint !== undefined && 'path' in endpoint ? endpoint.path : '';
  const arriving = { input, maxTokens, endpoint: path, sender: senderOf(model, keyId) };
  return classifyRequest(kinds, arriving, answers.predict(arriving))?.name;
}

interface CountedResponse {
  model: string;
  keyId: string;
  /** Id of the endpoint in the endpoint table. */
  endpoint: number;
  prompt: number;
  completion: number;
}

/** Called when an engine has counted the tokens of a complete response, from which later predictions learn. */
export function learnAnswer({ model, keyId, endpoint, prompt, completion }: CountedResponse): void {
  const path = endpointById(endpoint)?.path ?? '';
  answers.learn({ input: prompt, endpoint: path, sender: senderOf(model, keyId) }, completion);
}

/**
 * The kind of a request when it comes, for models whose settings name kinds. Histories of keys are this process's own: on Workers an isolate
 * learns from the tunnels that it holds, elsewhere the published kinds decide.
 */
import { endpointById, findEndpoint } from '../../shared/openai/endpoints.ts';
import { classifyRequest } from '../../shared/routing/kinds/kind.ts';
import { LengthPredictor } from '../../shared/routing/kinds/length-predictor.ts';
import type { RoutedRequest } from '../../shared/routing/policy.ts';
import { type GatewaySettings, settingsOf } from '../accounts/settings.ts';
import type { HttpRequest } from '../http/http-request.ts';

/** Bounded by itself. What other keys and other models were answered says nothing: before a key has a history the published kinds decide. */
const answers = new LengthPredictor('senders');

/** Two models of one key answer at different lengths. */
const senderOf = (model: string, keyId: string): string => `${keyId} ${model}`;

/** The name of its kind; undefined where the model has none. */
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

interface Answered {
  model: string;
  keyId: string;
  /** Id in the endpoint table. */
  endpoint: number;
  prompt: number;
  completion: number;
}

/** An engine counted the tokens of a whole answer: like requests are predicted from it. */
export function learnAnswer({ model, keyId, endpoint, prompt, completion }: Answered): void {
  const path = endpointById(endpoint)?.path ?? '';
  answers.learn({ input: prompt, endpoint: path, sender: senderOf(model, keyId) }, completion);
}

/** How the model of a realtime session reaches the engine, and which model the client's messages may name. */
import { isObject } from '../token-usage.ts';

/** Header of the OPEN frame with the model's name at the node, percent-encoded. Clients cannot send it to an agent. */
export const REALTIME_MODEL_HEADER = 'x-otela-realtime-model';

export function realtimeModelHeader(model: string): [string, string] {
  return [REALTIME_MODEL_HEADER, encodeURIComponent(model)];
}

/** The name of a model as JSON may contain it: `"model"`, or with a letter as a Unicode escape. */
const MAY_NAME_MODEL = /"model"|\\u/;

/**
 * Returns the client's message for the engine. A message may name the session's model, as `session.update` of vLLM and
 * OpenAI does. Then it gets the name that the node uses. Undefined: the message names another model, which the client's
 * key perhaps may not use.
 */
export function messageForEngine(text: string, requested: string, served: string): string | undefined {
  if (!MAY_NAME_MODEL.test(text)) return text;
  const message = parse(text);
  if (!isObject(message)) return text; // The engine refuses the message.
  const parts = [message, ...['session', 'response'].map((name) => message[name]).filter(isObject)];
  const named = parts.filter(({ model }) => model !== undefined);
  if (named.some(({ model }) => model !== requested && model !== served)) return undefined;
  if (named.length === 0 || requested === served) return text;
  for (const part of named) part.model = served;
  return JSON.stringify(message);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

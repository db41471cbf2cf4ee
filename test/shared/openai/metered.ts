/** A stream through a meter, and the events of which it consists. */
import { type Endpoint, findEndpoint } from '../../../shared/openai/endpoints.ts';
import type { MeterResult, UsageMeterOptions } from '../../../shared/openai/token-usage.ts';
import { createUsageMeter } from '../../../shared/openai/usage-meter.ts';
import { bytes, text } from './support.ts';

export const at = (name: string): Endpoint => {
  const found = findEndpoint('POST', `/v1/${name}`);
  if (found === undefined || 'methodNotAllowed' in found) throw new Error(name);
  return found;
};
export const chat = at('chat/completions');
export const DROP = { streaming: true, dropUsageEvent: true };
export const KEEP = { streaming: true, dropUsageEvent: false };

/** Passes all pieces through a meter: its output step by step and in total, and its result at the end. */
export function run(endpoint: Endpoint, options: UsageMeterOptions, pieces: readonly (Uint8Array | string)[]) {
  const meter = createUsageMeter(endpoint, options);
  const given = pieces.map((piece) => meter.push(typeof piece === 'string' ? bytes(piece) : piece));
  const end: MeterResult = meter.end();
  return { ...end, steps: given.map((step) => text(step)), out: text([...given.flat(), ...end.flush]) };
}

/** Events of a chat stream. */
export const token = (content: string, more = '') =>
  `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":${JSON.stringify(content)}},"finish_reason":null}]${more}}\n\n`;
export const stop = `data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}\n\n`;
export const usage = `data: {"id":"c","choices":[],"usage":{"prompt_tokens":11,"total_tokens":16,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":2}}}\n\n`;
export const done = 'data: [DONE]\n\n';
/** The usage that the responses of these tests report. */
export const counts = { prompt: 11, completion: 5, cached: 8, reasoning: 2, estimated: false };

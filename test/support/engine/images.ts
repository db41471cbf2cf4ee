/** Images, in the forms of OpenAI's API. */
import { type Answer, type Ask, json, refuse } from './answer.ts';
import { countTokens } from './words.ts';

/** Base64 of one picture. */
const PICTURE = Buffer.alloc(96, 7).toString('base64');
const PICTURES_MAX = 10;
const VIDEO_BYTES = 300_000;

/** Streams a sketch before each picture if it is asked to, as OpenAI's API does. */
export function images(ask: Ask): Answer {
  const { body, created } = ask;
  if (typeof body.prompt !== 'string') return refuse(400, 'BadRequestError', 'prompt: field required', 'prompt');
  const wanted = typeof body.n === 'number' ? body.n : 1;
  if (!(wanted >= 1 && wanted <= PICTURES_MAX)) return refuse(400, 'BadRequestError', 'n: out of range', 'n');
  const input_tokens = countTokens(body.prompt);
  const counts = { input_tokens, output_tokens: 100 * wanted, total_tokens: input_tokens + 100 * wanted };
  if (body.stream !== true)
    return json({ created, data: Array.from({ length: wanted }, () => ({ b64_json: PICTURE })), usage: counts });
  const event = (type: string, more: object) => ({ event: type, data: JSON.stringify({ type, ...more }), token: true });
  return {
    kind: 'stream',
    events: [
      event('image_generation.partial_image', { b64_json: PICTURE, partial_image_index: 0 }),
      event('image_generation.completed', { b64_json: PICTURE, usage: counts }),
    ],
  };
}

/** An answer to an uploaded picture. Like most engines, it counts no tokens. */
export function changedPicture(): Answer {
  return json({ created: 0, data: [{ b64_json: PICTURE }] });
}

/** A video in the response itself, as vLLM-Omni sends it from `/v1/videos/sync`. */
export function video(): Answer {
  return { kind: 'bytes', contentType: 'video/mp4', size: VIDEO_BYTES };
}

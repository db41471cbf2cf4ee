/** Seconds of audio and images, which engines report in several ways or not at all. */
import type { Endpoint } from './endpoints.ts';
import { isObject, type TokenUsage, type UsageMeterOptions } from './token-usage.ts';

/** Longest audio of one request: a day. A longer one is a mistake of the engine. */
export const AUDIO_MAX_MS = 24 * 60 * 60_000;
/** Most images of one request. OpenAI allows 10. */
export const IMAGES_MAX = 1_024;

interface MediaSeen {
  /** The response's `usage`, such as OpenAI's and vLLM's `{"type": "duration", "seconds": 3}`. */
  usage?: unknown;
  /** The `duration` in seconds of a `verbose_json` transcription: a number, or a number as text. */
  duration?: unknown;
  /** Milliseconds of audio in the response. */
  speechMs?: number;
  /** Images in the response. */
  images?: number;
}

/**
 * Returns what an attempt adds to its usage. The engine's own number of seconds counts. Without one, the audio itself
 * is measured. A failed response has no media.
 */
export function mediaOf(
  { media }: Pick<Endpoint, 'media'>,
  { status = 200, uploadedMs }: Pick<UsageMeterOptions, 'status' | 'uploadedMs'>,
  { usage, duration, speechMs, images = 0 }: MediaSeen,
): Pick<TokenUsage, 'audioMs' | 'images'> {
  if (media === undefined || status >= 400) return {};
  if (media === 'images') return images === 0 ? {} : { images: Math.min(IMAGES_MAX, images) };
  const reported = isObject(usage) ? secondsOf(usage.seconds) : undefined;
  const known = (reported ?? secondsOf(duration) ?? 0) * 1_000;
  const ms = media === 'speech' ? (speechMs ?? 0) : known > 0 ? known : (uploadedMs?.() ?? 0);
  return ms > 0 ? { audioMs: Math.min(AUDIO_MAX_MS, Math.round(ms)) } : {};
}

function secondsOf(value: unknown): number | undefined {
  const seconds = typeof value === 'string' && /^\d{1,9}(?:\.\d{1,9})?$/.test(value) ? Number(value) : value;
  return typeof seconds === 'number' && Number.isFinite(seconds) && seconds >= 0 ? seconds : undefined;
}

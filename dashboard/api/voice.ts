/** Speech to text and text to speech, by models of the gateway. */
import * as z from 'zod/mini';
import { send } from './client.ts';

interface VoiceRequest {
  model: string;
  /** Provider ids, separated by commas; empty: the key's setting. */
  trusted: string;
  signal: AbortSignal;
}

const transcriptSchema = z.object({ text: z.string() });

const trusting = (trusted: string): Record<string, string> =>
  trusted === '' ? {} : { 'x-otela-trusted-providers': trusted };

/** The words of a recording. @throws Problem; AbortError */
export async function transcribe(sound: Blob, { model, trusted, signal }: VoiceRequest): Promise<string> {
  const body = new FormData();
  body.append('model', model);
  // Engines choose the decoder by the file's name.
  body.append('file', sound, `voice.${sound.type.includes('mp4') ? 'mp4' : 'webm'}`);
  const response = await send('/v1/audio/transcriptions', { method: 'POST', headers: trusting(trusted), body, signal });
  return transcriptSchema.parse(await response.json()).text.trim();
}

/** The speech of a text. @throws Problem; AbortError */
export async function speak(text: string, { model, trusted, signal }: VoiceRequest): Promise<ArrayBuffer> {
  // The API requires a voice. Engines know OpenAI's names, or ignore the field.
  const body = JSON.stringify({ model, input: text, voice: 'alloy', response_format: 'wav' });
  const headers = { 'content-type': 'application/json', ...trusting(trusted) };
  const response = await send('/v1/audio/speech', { method: 'POST', headers, body, signal });
  return await response.arrayBuffer();
}

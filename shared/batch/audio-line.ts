/** Audio in lines of batches, in the form of vLLM's run-batch: the request as JSON, with the audio as a `data:` URL. */

/** The beginning of the URL. Only it is matched: a pattern for the whole of up to 4 MiB would need much memory. */
const BEGINNING = /^data:((?:audio|video)\/[a-z0-9.+-]{1,64});base64,/;
const BEGINNING_MAX_CHARS = 128;
const NOT_BASE64 = /[^A-Za-z0-9+/=]/;

interface Audio {
  type: string;
  base64: string;
}

/** Undefined for any other URL. */
export function readAudioUrl(url: string): Audio | undefined {
  const [beginning, type] = BEGINNING.exec(url.slice(0, BEGINNING_MAX_CHARS)) ?? [];
  if (beginning === undefined || type === undefined) return undefined;
  const base64 = url.slice(beginning.length);
  return base64 === '' || NOT_BASE64.test(base64) ? undefined : { type, base64 };
}

/** Members that are not fields of the form. Engines ignore `priority` in a form. */
const LEFT_OUT: ReadonlySet<string> = new Set(['file_url', 'priority', 'metadata']);

/**
 * The fields of the form that the engine gets for a line with audio.
 * @throws Error if no gateway has checked the line
 */
export function audioForm(body: Readonly<Record<string, unknown>>): { audio: Audio; fields: [string, string][] } {
  const { file_url: url } = body;
  const audio = typeof url === 'string' ? readAudioUrl(url) : undefined;
  if (audio === undefined) throw new Error('the line has no audio');
  const fields: [string, string][] = [];
  for (const [name, value] of Object.entries(body)) {
    if (LEFT_OUT.has(name) || value === null) continue;
    // OpenAI's clients send a list as one field for each item.
    if (Array.isArray(value)) for (const one of value) fields.push([`${name}[]`, text(one)]);
    else fields.push([name, text(value)]);
  }
  return { audio, fields };
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

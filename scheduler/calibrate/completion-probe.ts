import * as z from 'zod';
import { readTextAtMost } from '../../shared/collections/read-at-most.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { SchedulerError } from '../errors.ts';

/**
 * If a stream sends no data for this time, the measurement fails. A prompt of 8,192 tokens on the slowest GPU takes a
 * tenth of it.
 */
const SILENCE_MS = 120_000;
/** Maximum number of events of one response that are recorded. */
const EVENTS_MAX = 100_000;
const LINE_CHARS_MAX = 1 << 20;
/** Maximum size of a response that is not a stream. */
const ANSWER_MAX_BYTES = 1 << 20;

/** The OpenAI-compatible port of an engine. */
export interface ProbedEngine {
  url: string;
  model: string;
  /** Clock in milliseconds. It and `fetch` are parameters so that a test can replace them. */
  now(): number;
  fetch: typeof fetch;
  headers: Readonly<Record<string, string>>;
}

/** When the tokens of one response arrived, in milliseconds of the engine's clock. */
export interface CompletionTiming {
  sent: number;
  /** Times of the events that contain a token. */
  at: number[];
  promptTokens: number;
  answerTokens: number;
}

const eventSchema = z.object({
  choices: z.array(z.object({ text: z.string().nullish() })).optional(),
  usage: z
    .object({ prompt_tokens: z.number().int().positive(), completion_tokens: z.number().int().positive() })
    .nullish(),
  error: z.unknown().optional(),
});

/**
 * Streams one completion of exactly `maxTokens`.
 *
 * @throws SchedulerError `gateway` if the engine refuses, stalls or does not report its usage
 */
export async function timedCompletion(
  engine: ProbedEngine,
  prompt: string,
  maxTokens: number,
): Promise<CompletionTiming> {
  const timing: CompletionTiming = { sent: engine.now(), at: [], promptTokens: 0, answerTokens: 0 };
  const response = await ask(engine, {
    model: engine.model,
    prompt,
    max_tokens: maxTokens,
    temperature: 0,
    ignore_eos: true,
    stream: true,
    stream_options: { include_usage: true },
  });
  for await (const data of events(response)) {
    if (data === '[DONE]') break;
    const event = eventSchema.parse(JSON.parse(data));
    if (event.error !== undefined)
      throw new SchedulerError('gateway', `the engine reported an error in a response: ${data.slice(0, 200)}`);
    if ((event.choices?.length ?? 0) > 0 && timing.at.length < EVENTS_MAX) timing.at.push(engine.now());
    if (event.usage) {
      timing.promptTokens = event.usage.prompt_tokens;
      timing.answerTokens = event.usage.completion_tokens;
    }
  }
  if (timing.promptTokens === 0 || timing.at.length === 0)
    throw new SchedulerError(
      'gateway',
      'the engine sent no usage or no token; it must support stream_options.include_usage',
    );
  return timing;
}

async function ask(engine: ProbedEngine, body: unknown): Promise<Response> {
  let response: Response;
  try {
    response = await engine.fetch(`${engine.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...engine.headers },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(SILENCE_MS * 5),
    });
  } catch (cause) {
    const why = errorText(cause);
    throw new SchedulerError('gateway', `the engine at ${engine.url} does not answer: ${why}`, { cause });
  }
  if (!response.ok) {
    const text = (await answerText(response)).slice(0, 300);
    throw new SchedulerError('gateway', `the engine at ${engine.url} answered ${response.status}: ${text}`);
  }
  return response;
}

/** The text of a response; empty if it is larger than any list of models. */
async function answerText(response: Response): Promise<string> {
  return (await readTextAtMost(response.body, ANSWER_MAX_BYTES)) ?? '';
}

/** Yields the data of server-sent events. */
async function* events(response: Response): AsyncGenerator<string> {
  if (response.body === null) return;
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of response.body) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > LINE_CHARS_MAX) throw new SchedulerError('gateway', 'the engine sent a line that is too long');
    for (const line of lines) if (line.startsWith('data: ')) yield line.slice(6).trim();
  }
}

const versionSchema = z.object({ version: z.string().max(64) });
const modelsSchema = z.object({
  data: z
    .array(z.object({ id: z.string().max(256) }))
    .min(1)
    .max(1000),
});

/**
 * Returns a text such as `vLLM 0.19.0` or `SGLang 0.5.9`, by the path at which the engine returns its version. Returns
 * a generic name if it returns none.
 */
export async function servedEngineName(engine: ProbedEngine): Promise<string> {
  for (const [path, name] of [
    ['/version', 'vLLM'],
    ['/get_server_info', 'SGLang'],
  ] as const) {
    try {
      const response = await engine.fetch(`${engine.url}${path}`, { headers: engine.headers });
      const parsed = versionSchema.safeParse(response.ok ? tryParseJson(await answerText(response)) : undefined);
      if (parsed.success) return `${name} ${parsed.data.version}`;
    } catch {
      // Not an error: the engine may serve the next path.
    }
  }
  return 'an engine that does not report its version';
}

/** Returns the first model that the engine lists. */
export async function servedModel(engine: Omit<ProbedEngine, 'model'>): Promise<string> {
  const response = await engine
    .fetch(`${engine.url}/v1/models`, { headers: engine.headers })
    .catch((cause: unknown) => {
      throw new SchedulerError('gateway', `the engine at ${engine.url} does not answer`, { cause });
    });
  const parsed = modelsSchema.safeParse(response.ok ? tryParseJson(await answerText(response)) : undefined);
  const id = parsed.data?.data[0]?.id;
  if (id === undefined)
    throw new SchedulerError('gateway', `${engine.url}/v1/models answered ${response.status} and listed no model`);
  return id;
}

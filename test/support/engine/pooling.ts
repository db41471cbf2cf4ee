/**
 * Endpoints that generate no text: embeddings, those at the engine's root (rerank, score, classify, pooling, tokenize,
 * detokenize), moderations and audio.
 */
import { type Answer, type Ask, json, refuse } from './answer.ts';
import { countTokens } from './words.ts';

const EMBEDDING_DIMENSIONS = 16;

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [value];
}

/** The same text gives the same vector, so that a test can distinguish two inputs. */
function vector(input: unknown): number[] {
  const words = String(typeof input === 'string' ? input : JSON.stringify(input));
  const out = new Array<number>(EMBEDDING_DIMENSIONS).fill(0);
  for (let i = 0; i < words.length; i++) {
    const at = i % EMBEDDING_DIMENSIONS;
    out[at] = ((out[at] ?? 0) * 31 + words.charCodeAt(i)) % 997;
  }
  return out.map((value) => Math.fround(value / 997));
}

export function embeddings(ask: Ask): Answer {
  if (ask.body.input === undefined) return refuse(400, 'BadRequestError', 'input: field required', 'input');
  const data = list(ask.body.input).map((input, index) => {
    const numbers = vector(input);
    // openai-node asks for base64 by default: little-endian 32-bit floats.
    const embedding =
      ask.body.encoding_format === 'base64'
        ? Buffer.from(new Float32Array(numbers).buffer).toString('base64')
        : numbers;
    return { object: 'embedding', index, embedding };
  });
  const prompt_tokens = countTokens(ask.body.input);
  return json({
    id: ask.id,
    object: 'list',
    created: ask.created,
    model: ask.model,
    data,
    usage: usage(prompt_tokens),
  });
}

function usage(prompt_tokens: number) {
  return { prompt_tokens, total_tokens: prompt_tokens, completion_tokens: 0, prompt_tokens_details: null };
}

export function rerank(ask: Ask): Answer {
  const documents = list(ask.body.documents);
  const results = documents.map((document, index) => ({
    index,
    document: typeof document === 'string' ? { text: document } : document,
    relevance_score: vector([ask.body.query, document])[0] ?? 0,
  }));
  results.sort((a, b) => b.relevance_score - a.relevance_score);
  return json({ id: ask.id, model: ask.model, usage: { total_tokens: countTokens(documents) }, results });
}

export function score(ask: Ask): Answer {
  const data = list(ask.body.text_2).map((other, index) => ({
    index,
    object: 'score',
    score: vector([ask.body.text_1, other])[0] ?? 0,
  }));
  return json({
    id: ask.id,
    object: 'list',
    created: ask.created,
    model: ask.model,
    data,
    usage: usage(countTokens(ask.body)),
  });
}

export function classify(ask: Ask): Answer {
  const data = list(ask.body.input).map((_, index) => ({ index, label: 'stand-in', probs: [1], num_classes: 1 }));
  return json({
    id: ask.id,
    object: 'list',
    created: ask.created,
    model: ask.model,
    data,
    usage: usage(countTokens(ask.body.input)),
  });
}

export function pooling(ask: Ask): Answer {
  const data = list(ask.body.input).map((input, index) => ({ index, object: 'pooling', data: [vector(input)] }));
  const { id, created, model } = ask;
  return json({ id, object: 'list', created, model, data, usage: usage(countTokens(ask.body.input)) });
}

export function moderations(ask: Ask): Answer {
  const results = list(ask.body.input).map(() => ({ flagged: false, categories: {}, category_scores: {} }));
  return json({ id: ask.id, model: ask.model, results });
}

const SPEECH_BYTES = 48_000;

export function speech(): Answer {
  return { kind: 'bytes', contentType: 'audio/wav', size: SPEECH_BYTES };
}

export function transcription(bytes: number): Answer {
  const seconds = Math.max(1, Math.round(bytes / SPEECH_BYTES));
  return json({ text: 'The stand-in engine hears nothing.', usage: { type: 'duration', seconds } });
}

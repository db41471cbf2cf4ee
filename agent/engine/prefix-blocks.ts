/**
 * What a prompt has in common with others, without a word of it: its token ids by the engine's own tokenizer, in blocks, each told
 * by its digest. Asked after the answer, beside the engine's work, and never waited for: where there is no tokenizer, or no time,
 * there are none.
 */
import { createHash } from 'node:crypto';
import { request } from 'undici';
import { readTokens, TOKENS_ANSWER_MAX_BYTES } from '../../shared/openai/continuation/bodies.ts';
import { BLOCK_DIGEST_BYTES, BLOCKS_MAX } from '../../shared/wire/limits.ts';
import type { EngineTarget } from './address.ts';

/** As vLLM's cache blocks. */
const BLOCK_TOKENS = 16;
/** An engine with long queues is not to be asked more than its clients ask it. */
const AT_ONCE = 2;
const WAITING_MAX = 64;
const ANSWER_MS = 10_000;
/** Of a request: pictures are no prefix. */
export const PROMPT_MAX_BYTES = 1024 * 1024;

type Job = { body: Uint8Array; target: EngineTarget; done: (blocks: Uint8Array) => void };

export class PrefixBlocks {
  readonly #waiting: Job[] = [];
  #running = 0;

  /** `done` gets the digests one after the other, at most BLOCKS_MAX of them; empty: the engine has no tokenizer that we know. */
  ask(body: Uint8Array, target: EngineTarget, done: (blocks: Uint8Array) => void): void {
    if (this.#waiting.length >= WAITING_MAX) return;
    this.#waiting.push({ body, target, done });
    void this.#run();
  }

  async #run(): Promise<void> {
    if (this.#running >= AT_ONCE) return;
    this.#running++;
    for (let job = this.#waiting.shift(); job !== undefined; job = this.#waiting.shift()) {
      const blocks = await blocksOf(job.body, job.target).catch(() => undefined);
      if (blocks !== undefined) job.done(blocks);
    }
    this.#running--;
  }
}

/** Undefined where it is not known: the engine did not answer, or the request has no prompt that a tokenizer takes. */
async function blocksOf(body: Uint8Array, target: EngineTarget): Promise<Uint8Array | undefined> {
  const question = questionOf(body);
  if (question === undefined) return undefined;
  const { origin, pathPrefix, key } = target;
  const answer = await request(`${origin}${pathPrefix}/tokenize`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(key !== undefined && { authorization: `Bearer ${key}` }) },
    body: JSON.stringify(question),
    signal: AbortSignal.timeout(ANSWER_MS),
  });
  const bytes = await bounded(answer.body);
  const tokens = answer.statusCode === 200 && bytes !== undefined ? readTokens(bytes) : undefined;
  return tokens === undefined ? new Uint8Array() : digests(tokens);
}

/** As the engine read the prompt when it answered: chat by its template, with the tools. */
function questionOf(body: Uint8Array): object | undefined {
  const { model, messages, prompt, tools } = JSON.parse(Buffer.from(body).toString('utf8'));
  if (Array.isArray(messages))
    return { model, messages, add_generation_prompt: true, ...(tools !== undefined && { tools }) };
  return typeof prompt === 'string' ? { model, prompt } : undefined;
}

async function bounded(body: AsyncIterable<Buffer>): Promise<Uint8Array | undefined> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > TOKENS_ANSWER_MAX_BYTES) return undefined; // leaving the loop destroys the connection
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Full blocks alone: a rest is shared with no other prompt. */
function digests(tokens: readonly number[]): Uint8Array {
  const blocks = Math.min(BLOCKS_MAX, Math.floor(tokens.length / BLOCK_TOKENS));
  const out = new Uint8Array(blocks * BLOCK_DIGEST_BYTES);
  for (let n = 0; n < blocks; n++) {
    const ids = Uint32Array.from(tokens.slice(n * BLOCK_TOKENS, (n + 1) * BLOCK_TOKENS));
    out.set(createHash('sha256').update(new Uint8Array(ids.buffer)).digest(), n * BLOCK_DIGEST_BYTES);
  }
  return out;
}

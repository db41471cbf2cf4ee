/**
 * Finds how much of its beginning a prompt shares with other prompts, without storing its text. The engine's tokenizer
 * returns the token ids, which are cut into blocks, and each block has a digest. The tokenizer is asked after the
 * response, concurrently with the engine's work, and no request waits for it. If the engine has no tokenizer, or no
 * time for it, there are no blocks.
 */

import { createHash } from 'node:crypto';
import { request } from 'undici';
import { readAtMost } from '../../shared/collections/read-at-most.ts';
import { readTokens, TOKENS_ANSWER_MAX_BYTES } from '../../shared/openai/continuation/continuation-bodies.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { BLOCK_DIGEST_BYTES, BLOCKS_MAX } from '../../shared/wire/protocol-constants.ts';
import type { EngineTarget } from './engine-address.ts';

/** Tokens per block: the size of vLLM's cache blocks. */
const BLOCK_TOKENS = 16;
/** Maximum number of concurrent tokenizer requests. It is small, so that they do not burden a busy engine. */
const AT_ONCE = 2;
const WAITING_MAX = 64;
const ANSWER_MS = 10_000;
/** Maximum length of a request's body. Longer bodies contain pictures, which are not a common beginning. */
export const PROMPT_MAX_BYTES = 1024 * 1024;

type Job = { body: Uint8Array; target: EngineTarget; done: (blocks: Uint8Array) => void };

export class PrefixBlocks {
  readonly #waiting: Job[] = [];
  #running = 0;

  /**
   * `done` gets the concatenated digests, at most BLOCKS_MAX of them. They are empty if the engine has no known
   * tokenizer.
   */
  ask(body: Uint8Array, target: EngineTarget, done: (blocks: Uint8Array) => void): void {
    if (this.#waiting.length >= WAITING_MAX) return;
    this.#waiting.push({ body, target, done });
    neverRejects(this.#run());
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

/**
 * Digests of the prompt's blocks. Undefined if the engine did not answer, or if the request has no prompt for a
 * tokenizer.
 */
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
  const bytes = await readAtMost(answer.body, TOKENS_ANSWER_MAX_BYTES);
  const tokens = answer.statusCode === 200 && bytes !== undefined ? readTokens(bytes) : undefined;
  return tokens === undefined ? new Uint8Array() : digests(tokens);
}

/** The request to the tokenizer. A chat is sent with its tools, so that its template is applied. */
function questionOf(body: Uint8Array): object | undefined {
  const { model, messages, prompt, tools } = JSON.parse(Buffer.from(body).toString('utf8'));
  if (Array.isArray(messages))
    return { model, messages, add_generation_prompt: true, ...(tools !== undefined && { tools }) };
  return typeof prompt === 'string' ? { model, prompt } : undefined;
}

/** Digests of full blocks only: other prompts do not share the incomplete last block. */
function digests(tokens: readonly number[]): Uint8Array {
  const blocks = Math.min(BLOCKS_MAX, Math.floor(tokens.length / BLOCK_TOKENS));
  const out = new Uint8Array(blocks * BLOCK_DIGEST_BYTES);
  for (let n = 0; n < blocks; n++) {
    const ids = Uint32Array.from(tokens.slice(n * BLOCK_TOKENS, (n + 1) * BLOCK_TOKENS));
    out.set(createHash('sha256').update(new Uint8Array(ids.buffer)).digest(), n * BLOCK_DIGEST_BYTES);
  }
  return out;
}

/** Mooncake's trace of conversations (Qin et al., FAST 2025): arrivals, lengths, and blocks of prompts by chained hash. */
import * as z from 'zod';

export interface TracedRequest {
  /** Seconds since the beginning. */
  at: number;
  /** Tokens. */
  input: number;
  output: number;
  /** Ids of the prompt's blocks. Equal ids stand for equal blocks after equal beginnings. */
  blocks: readonly number[];
  /** Number of the conversation. */
  conversation: number;
}

const lineSchema = z.object({
  timestamp: z.number().min(0),
  input_length: z.int().min(1),
  output_length: z.int().min(0),
  hash_ids: z.array(z.int().min(0)).max(1_000_000),
});

/**
 * Reads the lines. The trace names no conversations: a prompt continues the conversation that had the last of its known
 * blocks. The first block, which is the system prompt, does not count.
 */
export function readMooncake(text: string): TracedRequest[] {
  const owner = new Map<number, number>();
  const requests: TracedRequest[] = [];
  for (const line of text.split('\n')) {
    if (line.trim() === '') continue;
    const {
      timestamp,
      input_length: input,
      output_length: output,
      hash_ids: blocks,
    } = lineSchema.parse(JSON.parse(line));
    const shared = blocks.slice(1).findLast((block) => owner.has(block));
    const conversation = (shared === undefined ? undefined : owner.get(shared)) ?? requests.length;
    for (const block of blocks.slice(1)) owner.set(block, conversation);
    requests.push({ at: timestamp / 1_000, input, output, blocks, conversation });
  }
  return requests;
}

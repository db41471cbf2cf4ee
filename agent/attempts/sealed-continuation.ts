/**
 * How this node continues a sealed stream that broke off at another node. A gateway does the same with an unsealed
 * stream.
 */

import { startTimer } from '../../node/timers.ts';
import { continuationBody, TOKENS_ANSWER_MAX_BYTES } from '../../shared/openai/continuation/continuation-bodies.ts';
import { planContinuation } from '../../shared/openai/continuation/continuation-plan.ts';
import { countTokens, type TokenizerCall } from '../../shared/openai/continuation/count-tokens.ts';
import { SplicedStream } from '../../shared/openai/continuation/spliced-stream.ts';
import { type Endpoint, endpointById } from '../../shared/openai/endpoints.ts';
import { estimateTokens } from '../../shared/openai/token-usage.ts';
import type { OpenFrame } from '../../shared/wire/frames.ts';
import type { ReplayedStream } from '../seal/replayed-stream.ts';
import type { EngineClient } from './engine-client.ts';

/** Timeout of a call to the engine's tokenizer, which normally answers within milliseconds. */
const TOKENS_MS = 5_000;

type SealedContinuation =
  /**
   * The engine must be asked. `joined` makes one stream of the part that the client already has and the engine's
   * response.
   */
  | { kind: 'ask'; body: Buffer; joined: SplicedStream }
  /** The text is already complete, so the engine is not asked. `rest` are the events that end the stream. */
  | { kind: 'ending'; rest: Uint8Array[] }
  /** This engine cannot continue the text, or tokenizes it differently. */
  | { kind: 'unfit' };

interface Options {
  endpoint: Endpoint;
  /** The client's original body. */
  body: Buffer;
  sent: ReplayedStream;
  ask: TokenizerCall;
}

export async function continueReplayed({ endpoint, body, sent, ask }: Options): Promise<SealedContinuation> {
  const plan = planContinuation(endpoint, body);
  if ('why' in plan) return { kind: 'unfit' };
  const joined = new SplicedStream(plan);
  for (const piece of sent.pieces) joined.push(piece);
  const { text, textEvents } = joined;
  if (joined.done) return { kind: 'ending', rest: [] };
  if (joined.finished || (plan.limit !== undefined && textEvents >= plan.limit))
    return { kind: 'ending', rest: joined.ending(estimateTokens(body.length), textEvents) };
  if (joined.obstacle !== undefined || joined.fault !== undefined) return { kind: 'unfit' };
  if (text === '') {
    joined.continueWith(0);
    return { kind: 'ask', body, joined };
  }
  const counted = await countTokens(plan, text, ask);
  if (typeof counted !== 'number') return { kind: 'unfit' };
  const produced = Math.max(textEvents, counted);
  joined.continueWith(produced);
  return { kind: 'ask', body: Buffer.from(continuationBody(plan, text, produced)), joined };
}

/**
 * Sends a separate HTTP request to the engine of `client`, on behalf of the request `open`. Undefined if no answer
 * arrives in time. Never rejects.
 */
export function askEngine(
  client: EngineClient,
  open: OpenFrame,
  id: number,
  question: Uint8Array,
): Promise<Uint8Array | undefined> {
  const endpoint = endpointById(id);
  if (endpoint === undefined) return Promise.resolve(undefined);
  const { promise, resolve } = Promise.withResolvers<Uint8Array | undefined>();
  const pieces: Uint8Array[] = [];
  let [bytes, answers] = [0, false];
  const own = { ...open, edits: [], headers: [['content-type', 'application/json']] satisfies OpenFrame['headers'] };
  const call = client.send(own, endpoint, Buffer.from(question), question.length, {
    onHead: (status) => {
      answers = status === 200;
    },
    onData: (piece) => {
      bytes += piece.length;
      if (bytes > TOKENS_ANSWER_MAX_BYTES) return end(undefined);
      pieces.push(piece);
    },
    onEnd: () => end(answers ? Buffer.concat(pieces) : undefined),
    onError: () => end(undefined),
  });
  const stop = startTimer(TOKENS_MS, () => end(undefined));
  function end(answer: Uint8Array | undefined): void {
    stop();
    if (answer === undefined) call.abort();
    resolve(answer);
  }
  return promise;
}

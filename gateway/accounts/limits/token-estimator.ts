/**
 * Estimates how many tokens a request will use, from its own bounds and from the usage of the key's earlier requests.
 */
import * as z from 'zod';

/** Assumed tokens per byte of a prompt, until the key's own prompts give a better value. */
const TOKENS_PER_BYTE = 1 / 4;
/** Estimated prompt tokens of a body of unknown length. */
const UNKNOWN_PROMPT_TOKENS = 1_024;
/**
 * Maximum estimated prompt tokens. Longer contexts are rare, and larger bodies contain images. Without this bound one
 * large request would reserve a whole project's tokens of a minute.
 */
const PROMPT_MAX_TOKENS = 131_072;

/**
 * Estimated response tokens of a key without history, if the request sets no maximum: this share of the limit per
 * minute, between the two bounds below.
 */
const FIRST_ANSWER_SHARE = 1 / 16;
const FIRST_ANSWER_MIN_TOKENS = 256;
const FIRST_ANSWER_MAX_TOKENS = 1_024;

/**
 * If a key has at least this many responses, their mean is the estimate. With fewer, the mean also includes the first
 * guess, as if it were a response.
 */
const ANSWERS_FOR_MEAN = 3;
/** The means cover about this many recent responses, because a key's usage changes. */
const REMEMBERED_ANSWERS = 32;

export interface TokenForecast {
  /** Bytes of the request's body; undefined: unknown. */
  bodyBytes: number | undefined;
  /** Maximum tokens of all choices of the response together; undefined: the request does not set it. */
  maxTokens: number | undefined;
  /** Which tokens are estimated. `nothing`: none; `prompt`: only the prompt, because no text is generated. */
  counts: 'nothing' | 'prompt' | 'answer';
}

/** Tokens of one request, as its engine counted them. */
export interface UsedTokens {
  prompt: number;
  completion: number;
}

const stateSchema = z.object({
  answers: z.number(),
  completion: z.number(),
  /** Of the responses whose requests set a maximum: the sum of their tokens, and the sum of their maximums. */
  bounded: z.number(),
  bound: z.number(),
  promptTokens: z.number(),
  promptBytes: z.number(),
});
type State = z.infer<typeof stateSchema>;

const NOTHING: State = { answers: 0, completion: 0, bounded: 0, bound: 0, promptTokens: 0, promptBytes: 0 };

/** Estimates the tokens of the requests of one key, or of all keys of a project. Pure. */
export class TokenEstimator {
  #state: State;

  /** @param state the result of `state`, from this version or another */
  constructor(state?: unknown) {
    this.#state = stateSchema.safeParse(state).data ?? { ...NOTHING };
  }

  /** True if this estimator has enough responses to be preferred to the project's. */
  get believed(): boolean {
    return this.#state.answers >= ANSWERS_FOR_MEAN;
  }

  /** @param tokensPerMinute the tightest limit that the request counts against */
  estimate(forecast: TokenForecast, tokensPerMinute = 0): number {
    const { counts, bodyBytes, maxTokens } = forecast;
    if (counts === 'nothing') return 0;
    const { promptBytes, promptTokens } = this.#state;
    const perByte = promptBytes > 0 ? promptTokens / promptBytes : TOKENS_PER_BYTE;
    const prompt = bodyBytes === undefined ? UNKNOWN_PROMPT_TOKENS : Math.ceil(bodyBytes * perByte);
    const answer = counts === 'prompt' ? 0 : this.#answer(maxTokens, tokensPerMinute);
    return Math.min(prompt, PROMPT_MAX_TOKENS) + Math.ceil(answer);
  }

  /** Estimates the response's tokens, at most `maxTokens`. */
  #answer(maxTokens: number | undefined, tokensPerMinute: number): number {
    const { answers, completion, bounded, bound } = this.#state;
    const most = maxTokens ?? Number.POSITIVE_INFINITY;
    const share = tokensPerMinute * FIRST_ANSWER_SHARE;
    const first = maxTokens ?? Math.min(FIRST_ANSWER_MAX_TOKENS, Math.max(FIRST_ANSWER_MIN_TOKENS, share));
    if (answers < ANSWERS_FOR_MEAN) return Math.min(most, (completion + first) / (answers + 1));
    // A request that sets ten times the usual maximum may well use ten times as many tokens.
    const byBound = maxTokens === undefined || bound === 0 ? 0 : maxTokens * (bounded / bound);
    return Math.min(most, Math.max(completion / answers, byBound));
  }

  learn({ counts, bodyBytes, maxTokens }: TokenForecast, { prompt, completion }: UsedTokens): void {
    if (counts === 'nothing' || prompt + completion === 0) return; // for example a request that its engine refused
    const state = this.#state;
    if (bodyBytes !== undefined && bodyBytes > 0) {
      state.promptTokens += prompt;
      state.promptBytes += bodyBytes;
    }
    if (counts === 'answer') {
      state.answers++;
      state.completion += completion;
      if (maxTokens !== undefined) {
        state.bounded += completion;
        state.bound += maxTokens;
      }
    }
    if (state.answers > REMEMBERED_ANSWERS) this.#fade();
  }

  #fade(): void {
    const kept = REMEMBERED_ANSWERS / this.#state.answers;
    for (const name of Object.keys(NOTHING) as (keyof State)[]) this.#state[name] *= kept;
  }

  state(): State {
    return { ...this.#state };
  }
}

/** Estimates by the key's responses, or by the project's while the key has too few. */
export function estimateTokens(
  forecast: TokenForecast,
  tokensPerMinute: number,
  { project, key }: { project: TokenEstimator; key: TokenEstimator },
): number {
  return (!key.believed && project.believed ? project : key).estimate(forecast, tokensPerMinute);
}

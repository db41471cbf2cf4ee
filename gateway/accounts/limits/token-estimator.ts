/**
 * Estimates how many tokens a request will use, from its own bounds and from the usage of the key's earlier requests.
 */
import * as z from 'zod';

/** The rule of thumb for text, until the key's own prompts give a better value. */
const TOKENS_PER_BYTE = 1 / 4;
/** Estimate for a body of unknown length. */
const UNKNOWN_PROMPT_TOKENS = 1_024;
/**
 * Longer contexts are rare, and larger bodies contain images. Without this bound one large request would reserve the
 * minute of a whole project.
 */
const PROMPT_MAX_TOKENS = 131_072;

/**
 * The response of a key without history, if the request sets no bound: this share of the minute, within these bounds.
 */
const FIRST_ANSWER_SHARE = 1 / 16;
const FIRST_ANSWER_MIN_TOKENS = 256;
const FIRST_ANSWER_MAX_TOKENS = 1_024;

/** Number of responses from which their mean is used. With fewer, the first guess is included as one more response. */
const ANSWERS_FOR_MEAN = 3;
/** Older responses fade after about this many, because a key's usage changes. */
const REMEMBERED_ANSWERS = 32;

export interface TokenForecast {
  /** Bytes of the body; undefined: unknown. */
  bodyBytes: number | undefined;
  /** Maximum tokens of all choices of the response together; undefined: the request does not say. */
  maxTokens: number | undefined;
  /** `nothing`: tokens are not counted; `prompt`: no text is generated. */
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
  /** Of the responses with a bound: the sum of their tokens, and the sum of their bounds. */
  bounded: z.number(),
  bound: z.number(),
  promptTokens: z.number(),
  promptBytes: z.number(),
});
type State = z.infer<typeof stateSchema>;

const NOTHING: State = { answers: 0, completion: 0, bounded: 0, bound: 0, promptTokens: 0, promptBytes: 0 };

/** The estimator of one key, or of all keys of a project. Pure. */
export class TokenEstimator {
  #state: State;

  /** @param state what `state` returned, in this version or another */
  constructor(state?: unknown) {
    this.#state = stateSchema.safeParse(state).data ?? { ...NOTHING };
  }

  /** True if its own mean is better than the mean of its project. */
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

  /** Never more than the request's bound. */
  #answer(maxTokens: number | undefined, tokensPerMinute: number): number {
    const { answers, completion, bounded, bound } = this.#state;
    const most = maxTokens ?? Number.POSITIVE_INFINITY;
    const share = tokensPerMinute * FIRST_ANSWER_SHARE;
    const first = maxTokens ?? Math.min(FIRST_ANSWER_MAX_TOKENS, Math.max(FIRST_ANSWER_MIN_TOKENS, share));
    if (answers < ANSWERS_FOR_MEAN) return Math.min(most, (completion + first) / (answers + 1));
    // A request that allows ten times as many tokens as the others may well use ten times as many.
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

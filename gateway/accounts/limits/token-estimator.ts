/** How many tokens a request will use, before it runs: by its own words, and by what the key's earlier requests used. */
import * as z from 'zod';

/** The rule of thumb for text, until the key's own prompts say better. */
const TOKENS_PER_BYTE = 1 / 4;
/** Of a body that does not say how long it is. */
const UNKNOWN_PROMPT_TOKENS = 1_024;
/** Longer contexts are rare, and larger bodies are pictures: no request takes a whole project's minute by its length alone. */
const PROMPT_MAX_TOKENS = 131_072;

/** An answer of a key without a past, where the request names no bound: a small part of the minute, within these. */
const FIRST_ANSWER_SHARE = 1 / 16;
const FIRST_ANSWER_MIN_TOKENS = 256;
const FIRST_ANSWER_MAX_TOKENS = 1_024;

/** From so many answers on their mean is believed; fewer are mixed with the first guess, which counts as one. */
const BELIEVED_ANSWERS = 3;
/** Earlier answers than about so many fade: a key's use changes. */
const REMEMBERED_ANSWERS = 32;

export interface TokenForecast {
  /** Bytes of its body; undefined: it does not say. */
  bodyBytes: number | undefined;
  /** The most that the request lets its answer take, all choices together; undefined: it does not say. */
  maxTokens: number | undefined;
  /** `nothing`: no tokens are counted here; `prompt`: no text is generated. */
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
  /** Of those answers that had a bound: what they took, and what they might have taken. */
  bounded: z.number(),
  bound: z.number(),
  promptTokens: z.number(),
  promptBytes: z.number(),
});
type State = z.infer<typeof stateSchema>;

const NOTHING: State = { answers: 0, completion: 0, bounded: 0, bound: 0, promptTokens: 0, promptBytes: 0 };

/** Of one key, or of all keys of a project. Pure. */
export class TokenEstimator {
  #state: State;

  /** @param state what `state` returned, in this version or another */
  constructor(state?: unknown) {
    this.#state = stateSchema.safeParse(state).data ?? { ...NOTHING };
  }

  /** Its own mean is worth more than that of its project. */
  get believed(): boolean {
    return this.#state.answers >= BELIEVED_ANSWERS;
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

  /** Never more than the request's own bound. */
  #answer(maxTokens: number | undefined, tokensPerMinute: number): number {
    const { answers, completion, bounded, bound } = this.#state;
    const most = maxTokens ?? Number.POSITIVE_INFINITY;
    const share = tokensPerMinute * FIRST_ANSWER_SHARE;
    const first = maxTokens ?? Math.min(FIRST_ANSWER_MAX_TOKENS, Math.max(FIRST_ANSWER_MIN_TOKENS, share));
    if (answers < BELIEVED_ANSWERS) return Math.min(most, (completion + first) / (answers + 1));
    // A request that allows ten times as much as the others may well take ten times as much.
    const byBound = maxTokens === undefined || bound === 0 ? 0 : maxTokens * (bounded / bound);
    return Math.min(most, Math.max(completion / answers, byBound));
  }

  learn({ counts, bodyBytes, maxTokens }: TokenForecast, { prompt, completion }: UsedTokens): void {
    if (counts === 'nothing' || prompt + completion === 0) return; // refused by its engine, for instance
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

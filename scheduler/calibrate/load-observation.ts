import type { Random } from '../simulator/random.ts';
import { type CompletionTiming, type ProbedEngine, timedCompletion } from './completion-probe.ts';

/** A measurement of a decoding batch or of a single prompt. `ms`: duration of one step, or time to first token. */
export interface LoadObservation {
  kind: 'decode' | 'prompt';
  /** Number of concurrent requests. */
  sequences: number;
  /** Number of tokens of each prompt, as the engine counted them. */
  prompt: number;
  /** Mean context of a sequence during the timed steps, tokens. */
  context: number;
  ms: number;
}

interface Phase {
  kind: LoadObservation['kind'];
  sequences: number;
  promptWords: number;
  answer: number;
  /** Number of repetitions; their median is used. */
  repeats: number;
}

/**
 * Short prompts in growing batches reveal the times of products and of the host, long prompts the time of attention,
 * and single prompts the time of arithmetic.
 */
const PHASES: readonly Phase[] = [
  ...[1, 2, 4, 8, 16, 32, 64, 128].map((sequences) => phase('decode', sequences, 16, 96, sequences === 1 ? 3 : 2)),
  ...[4, 16, 32].map((sequences) => phase('decode', sequences, 2000, 64, 2)),
  ...[16, 128, 512, 1024, 2048, 4096].map((words) => phase('prompt', 1, words, 1, 4)),
];

function phase(kind: Phase['kind'], sequences: number, promptWords: number, answer: number, repeats: number): Phase {
  return { kind, sequences, promptWords, answer, repeats };
}

interface Load {
  engine: ProbedEngine;
  random: Random;
  /** Context length of the model: phases that exceed it are skipped. 0: unknown. */
  contextTokens: number;
  /**
   * The engine's limit of sequences in a batch. Larger batches are skipped, because some of their sequences would wait.
   */
  maxSequences: number;
  /** No phase begins more than this many milliseconds after the first phase began. */
  limitMs: number;
  log(line: string): void;
}

/** A word is at least one token and at most about two in any tokenizer. */
const TOKENS_PER_WORD_MAX = 2;

/** Runs the phases in sequence. The engine must have no other load. */
export async function observeLoad(load: Load): Promise<LoadObservation[]> {
  const { engine, contextTokens, maxSequences, limitMs, log } = load;
  const begun = engine.now();
  // Warm-up: during the first requests, the engine captures graphs and fills caches.
  await Promise.all([1, 2, 3, 4].map(() => timedCompletion(engine, promptOf(64, load.random), 16)));
  const observations: LoadObservation[] = [];
  for (const one of PHASES) {
    if (one.sequences > maxSequences) continue;
    if (contextTokens > 0 && one.promptWords * TOKENS_PER_WORD_MAX + one.answer > contextTokens) continue;
    if (engine.now() - begun > limitMs) {
      log(`the time limit was reached after ${observations.length} of ${PHASES.length} phases; the fit uses these`);
      break;
    }
    const found = await repeated(one, load);
    observations.push(found);
    log(`${found.kind}: ${found.sequences} concurrent, prompts of ${found.prompt} tokens: ${found.ms.toFixed(2)} ms`);
  }
  return observations;
}

async function repeated(one: Phase, load: Load): Promise<LoadObservation> {
  const runs: LoadObservation[] = [];
  for (let i = 0; i < one.repeats; i++) {
    const timings = await Promise.all(
      Array.from({ length: one.sequences }, () =>
        timedCompletion(load.engine, promptOf(one.promptWords, load.random), one.answer),
      ),
    );
    runs.push(one.kind === 'prompt' ? firstToken(timings) : stepTime(timings));
  }
  runs.sort((a, b) => a.ms - b.ms);
  const middle = runs[Math.floor((runs.length - 1) / 2)];
  if (middle === undefined) throw new Error('a phase without runs');
  return middle;
}

/**
 * Makes a prompt with a beginning that no other prompt has. Otherwise a prefix cache would answer instead of the GPU.
 */
function promptOf(words: number, random: Random): string {
  return Array.from({ length: words }, () => SYLLABLES[Math.floor(random() * SYLLABLES.length)]).join(' ');
}

const SYLLABLES = 'sun tree door river stone cloud paper light green seven house water bread music north field'.split(
  ' ',
);

function firstToken(timings: readonly CompletionTiming[]): LoadObservation {
  const [one] = timings;
  const ms = (one?.at[0] ?? Number.NaN) - (one?.sent ?? 0);
  return { kind: 'prompt', sequences: 1, prompt: one?.promptTokens ?? 0, context: 0, ms };
}

/**
 * Computes the time of a step from the interval between the latest first token and the earliest end of a response. In
 * that interval, all sequences decode and the engine does nothing else.
 */
function stepTime(timings: readonly CompletionTiming[]): LoadObservation {
  const from = Math.max(...timings.map(({ at }) => at[0] ?? 0));
  const until = Math.min(...timings.map(({ at }) => at.at(-1) ?? 0));
  let [steps, before, prompts] = [0, 0, 0];
  for (const { at, promptTokens, answerTokens } of timings) {
    // The number of tokens per event is measured, because an engine under load puts several tokens into one event.
    const perEvent = (answerTokens - 1) / Math.max(1, at.length - 1);
    steps += at.filter((time) => time > from && time <= until).length * perEvent;
    before += at.filter((time) => time <= from).length * perEvent;
    prompts += promptTokens;
  }
  const n = timings.length;
  const context = prompts / n + before / n + steps / n / 2;
  return {
    kind: 'decode',
    sequences: n,
    prompt: Math.round(prompts / n),
    context,
    ms: ((until - from) * n) / Math.max(1, steps),
  };
}

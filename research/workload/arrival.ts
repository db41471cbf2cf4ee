import { Heap } from '../../scheduler/simulator/heap.ts';
import { moments } from '../../scheduler/simulator/length-distribution.ts';
import { type FittedKind, type KindLengths, kindClassifier } from '../../scheduler/workload/request-kinds.ts';
import { LengthPredictor } from '../../shared/routing/kinds/length-predictor.ts';
import type { ArrivingRequest } from '../../shared/routing/kinds/request-kind.ts';

/** How often the kind at arrival is the true one. */
export interface Misjudgement {
  requests: number;
  /** Share of requests with a misjudged kind. */
  wrong: number;
  /** `confusion[true][judged]`: requests. */
  confusion: number[][];
}

/** Assumed seconds from a request's arrival until its response has ended, and its length is known: per token. */
const TOKEN_S = 0.05;

/**
 * The kind of each request as a gateway judges it when it arrives: it knows the responses of the past, and those of
 * these requests that have ended by then. `past` and `requests`: in order of arrival.
 */
export function judgeAtArrival(
  kinds: readonly FittedKind[],
  past: readonly (KindLengths & ArrivingRequest)[],
  requests: readonly (KindLengths & ArrivingRequest & { arrivalS: number })[],
): Int32Array {
  const predictor = new LengthPredictor();
  for (const request of past) predictor.learn(request, request.output);
  const classifier = new ArrivalClassifier(kinds, predictor);
  const running = new Heap<() => void>();
  return Int32Array.from(requests, (request, index) => {
    while ((running.peek()?.key ?? Number.POSITIVE_INFINITY) <= request.arrivalS) running.pop()?.item();
    const judged = classifier.judge(request);
    running.push(request.arrivalS + TOKEN_S * request.output, index, () =>
      classifier.ended(request, judged, request.output),
    );
    return judged;
  });
}

/** Requests of one kind from which simulations draw. */
const EXAMPLES = 400;

/**
 * The same kinds with the lengths of the requests that were judged to be of each kind when they arrived. A plan for
 * judged requests needs the lengths that they turn out to have. `judged[i]`: kind of request i.
 */
export function kindsAsJudged(
  kinds: readonly FittedKind[],
  requests: readonly KindLengths[],
  judged: ArrayLike<number>,
): FittedKind[] {
  const members = kinds.map((): KindLengths[] => []);
  for (const [i, one] of requests.entries()) members[judged[i] ?? 0]?.push(one);
  return kinds.map((kind, j) => {
    const own = members[j] ?? [];
    // Without such a request, the kind keeps its lengths.
    if (own.length === 0) return { ...kind, share: 0 };
    const stride = Math.max(1, own.length / EXAMPLES);
    const examples = Array.from({ length: Math.min(EXAMPLES, own.length) }, (_, i) => own[Math.floor(i * stride)]);
    const of = (name: 'input' | 'output') => moments({ kind: 'samples', values: own.map((one) => one[name]) });
    return {
      ...kind,
      moments: { input: of('input'), output: of('output') },
      examples: examples.flatMap((one) => one ?? []),
      share: own.length / requests.length,
    };
  });
}

/** Judges the kind of a request on arrival: the prompt is known, the response is predicted. */
export class ArrivalClassifier {
  readonly #kindOf: (lengths: KindLengths) => number;
  readonly #predictor: LengthPredictor;
  readonly #confusion: number[][];

  constructor(kinds: readonly FittedKind[], predictor = new LengthPredictor()) {
    this.#kindOf = kindClassifier(kinds);
    this.#predictor = predictor;
    this.#confusion = kinds.map(() => kinds.map(() => 0));
  }

  judge(request: ArrivingRequest): number {
    return this.#kindOf({ input: request.input, output: this.#predictor.predict(request).output });
  }

  /**
   * Called when the response has ended: the predictor learns from it, and the judgment is compared. Returns the true
   * kind.
   */
  ended(request: ArrivingRequest, judged: number, output: number): number {
    const truth = this.#kindOf({ input: request.input, output });
    const row = this.#confusion[truth];
    if (row !== undefined) row[judged] = (row[judged] ?? 0) + 1;
    this.#predictor.learn(request, output);
    return truth;
  }

  get misjudgement(): Misjudgement {
    const requests = this.#confusion.flat().reduce((sum, n) => sum + n, 0);
    const right = this.#confusion.reduce((sum, row, kind) => sum + (row[kind] ?? 0), 0);
    return {
      requests,
      wrong: requests === 0 ? 0 : 1 - right / requests,
      confusion: this.#confusion.map((row) => [...row]),
    };
  }
}

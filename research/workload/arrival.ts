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

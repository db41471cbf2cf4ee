import { LengthPredictor } from '../../shared/routing/kinds/length-predictor.ts';
import type { ArrivingRequest } from '../../shared/routing/kinds/request-kind.ts';

export interface LengthError {
  requests: number;
  /** Median of |predicted − true| / true. */
  medianRelative: number;
  /** Share of predictions within a factor of two. */
  withinTwo: number;
}

/**
 * Predicts each request from the previous ones, in order, and learns from it afterwards, because the length of a
 * response is unknown until it ends.
 */
export function lengthErrors(
  requests: readonly (ArrivingRequest & { output: number })[],
  predictor = new LengthPredictor(),
): LengthError {
  const relative: number[] = [];
  let within = 0;
  for (const request of requests) {
    const { output } = predictor.predict(request);
    relative.push(Math.abs(output - request.output) / request.output);
    if (output <= 2 * request.output && output >= request.output / 2) within++;
    predictor.learn(request, request.output);
  }
  relative.sort((a, b) => a - b);
  return {
    requests: requests.length,
    medianRelative: relative[Math.floor(relative.length / 2)] ?? 0,
    withinTwo: requests.length === 0 ? 0 : within / requests.length,
  };
}

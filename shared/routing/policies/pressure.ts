import type { Candidate } from '../candidates.ts';

/**
 * How many requests a candidate has to work on, as far as is known: what its engine last said and what went there since, never
 * less than what is on its way from here. One that waits in the engine counts twice: the engine's batch is full.
 */
export function pressure(candidate: Candidate): number {
  const { load, inFlight } = candidate;
  if (load === undefined) return inFlight;
  const since = inFlight - (candidate.inFlightThen ?? inFlight);
  return Math.max(inFlight, load.running + load.waiting + since) + load.waiting;
}

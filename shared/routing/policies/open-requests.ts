import type { Candidate } from '../candidates.ts';

/**
 * Estimated number of requests that a candidate has to work on: its engine's last report, plus the requests sent since
 * that report. At least the number of requests that are open from here. A request in the engine's queue counts twice,
 * because the engine's batch is full.
 */
export function openRequests(candidate: Candidate): number {
  const { load, inFlight } = candidate;
  if (load === undefined) return inFlight;
  const since = inFlight - (candidate.inFlightThen ?? inFlight);
  return Math.max(inFlight, load.running + load.waiting + since) + load.waiting;
}

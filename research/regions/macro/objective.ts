import type { RunResult } from '../simulator/recorder.ts';
import { DEFAULT_WEIGHTS } from './problem.ts';

/** The weighted sum (1) per task, seconds: response, change of shares and electricity, with the planner's weights. */
export function objectiveS({ responseS, shareChange, costUsd, completed }: RunResult): number {
  const { smoothness, secondsPerUsd } = DEFAULT_WEIGHTS;
  return responseS.mean + smoothness * shareChange + (secondsPerUsd * costUsd) / Math.max(1, completed);
}

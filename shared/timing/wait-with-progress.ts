import type { StartTimer } from './start-timer.ts';

/** Intervals between the progress reports of a command that waits. The last interval repeats. */
const PROGRESS_MS = [5_000, 15_000, 40_000, 60_000] as const;

/**
 * Waits for `work`, and reports progress periodically. There is no time limit, because a command cannot know whether
 * the other side is slow or dead, and a person can end the command. `tell` receives the number of seconds so far.
 */
export async function waitWithProgress<T>(
  work: Promise<T>,
  after: StartTimer,
  tell: (seconds: number) => void,
): Promise<T> {
  let passedMs = 0;
  let stop = () => {};
  const arm = (times: number) => {
    const ms = PROGRESS_MS[Math.min(times, PROGRESS_MS.length - 1)] ?? 60_000;
    stop = after(ms, () => {
      passedMs += ms;
      tell(passedMs / 1_000);
      arm(times + 1);
    });
  };
  arm(0);
  try {
    return await work;
  } finally {
    stop();
  }
}

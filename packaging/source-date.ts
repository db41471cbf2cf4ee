/** When what is released was last changed: files carry this date, so that two runs give the same bytes. https://reproducible-builds.org/specs/source-date-epoch/ */
import { execFileSync } from 'node:child_process';

/** A copy without git has no date: the one that npm gives the files of its packages. */
const WITHOUT_GIT_S = 499_162_500;

/** Seconds since 1970: SOURCE_DATE_EPOCH, or that of the last commit. */
export function sourceDate(root: string): number {
  const given = process.env.SOURCE_DATE_EPOCH;
  if (given !== undefined && /^\d{1,11}$/.test(given)) return Number(given);
  try {
    const git = ['-C', root, 'log', '-1', '--format=%ct'];
    return Number(execFileSync('git', git, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim());
  } catch {
    return WITHOUT_GIT_S;
  }
}

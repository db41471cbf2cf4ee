/**
 * Minimum time between two equal lines. A gateway that is unreachable for a night is dialed thousands of times, and
 * each dial logs the same line.
 */
const REPEAT_MS = 60_000;

/** Logs a line unless the same line, apart from its numbers, was logged within the last minute. */
export function collapseRepeats(log: (line: string) => void): (line: string) => void {
  let last = { text: '', at: 0 };
  return (line) => {
    const text = line.replace(/\d+/g, '#');
    const now = performance.now();
    if (text === last.text && now - last.at < REPEAT_MS) return;
    last = { text, at: now };
    log(line);
  };
}

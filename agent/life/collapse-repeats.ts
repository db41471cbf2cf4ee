/** A gateway away for a night is tried thousands of times; each try says the same. */
const REPEAT_MS = 60_000;

/** Passes a line on unless the same one, numbers apart, was passed on within the last minute. */
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

/** True if the reader of a command's output closed stdout, which it may do early (`… | head`). */

let gone = false;

/**
 * A closed stdout must not end a gateway or a deletion, and is not an error. Commands that only print check
 * `isStdoutClosed` and stop.
 */
export function watchStdout(): void {
  for (const stream of [process.stdout, process.stderr])
    stream.on('error', () => {
      gone ||= stream === process.stdout;
    });
}

export function isStdoutClosed(): boolean {
  return gone;
}

/** Resolves when stdout accepts more, or never will again. */
export function waitForStdout(): Promise<void> {
  return new Promise((resolve) => {
    for (const event of ['drain', 'error', 'close']) process.stdout.once(event, () => resolve());
  });
}

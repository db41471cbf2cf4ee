/** Tracks whether the reader of the command's output closed stdout, which it may do early (`… | head`). */

let gone = false;

/**
 * Ignores the error of a closed stdout, which must not end a gateway or a deletion. Commands that only print check
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

/** Resolves when stdout accepts more output, or is closed. */
export function waitForStdout(): Promise<void> {
  return new Promise((resolve) => {
    for (const event of ['drain', 'error', 'close']) process.stdout.once(event, () => resolve());
  });
}

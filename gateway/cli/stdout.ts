/** The reader of what a command prints; it may go before the end (`… | head`). */

let gone = false;

/** Its going ends no gateway and no deletion, and is no error: what only prints asks `isStdoutClosed` and stops. */
export function watchStdout(): void {
  for (const stream of [process.stdout, process.stderr])
    stream.on('error', () => {
      gone ||= stream === process.stdout;
    });
}

/** Whether stdout's reader has gone. */
export function isStdoutClosed(): boolean {
  return gone;
}

/** Resolves when stdout takes more, or never will. */
export function waitForStdout(): Promise<void> {
  return new Promise((resolve) => {
    for (const event of ['drain', 'error', 'close']) process.stdout.once(event, () => resolve());
  });
}

/**
 * Runs after `ms`, and not before sockets were read: a starved event loop runs its timers first, and what they wait for may have been
 * in the kernel for long. Returns how to call it off.
 */
export function afterIo(ms: number, run: () => void): () => void {
  let turns = 2;
  let immediate: NodeJS.Immediate | undefined;
  const turn = () => {
    if (turns === 0) return run();
    turns -= 1;
    immediate = setImmediate(turn);
  };
  const timer = setTimeout(turn, ms);
  return () => {
    clearTimeout(timer);
    clearImmediate(immediate);
  };
}

/** A runtime's timer: calls `ring` after `ms` unless the returned function was called before. */
export type After = (ms: number, ring: () => void) => () => void;

/** True if `work` is still unfinished after `ms`. */
export async function isSlower(work: Promise<unknown>, ms: number, after: After): Promise<boolean> {
  let stop = () => {};
  const late = new Promise<boolean>((resolve) => {
    stop = after(ms, () => resolve(true));
  });
  const done = work.then(
    () => false,
    () => false,
  );
  const slower = await Promise.race([done, late]);
  stop();
  return slower;
}

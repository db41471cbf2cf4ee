/** A runtime's timer. It calls `onTimer` after `ms`, unless the returned function is called before. */
export type StartTimer = (ms: number, onTimer: () => void) => () => void;

/** True if `work` has not settled after `ms`. */
export async function timesOut(work: Promise<unknown>, ms: number, after: StartTimer): Promise<boolean> {
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

/** A long form that is a program: it ends everything that it started, also after Ctrl-C. */
import { neverRejects } from '../../shared/timing/in-background.ts';
import { endAll } from '../support/processes.ts';

/** `missing`: the reason if it cannot run here. */
export async function runByHand(run: () => Promise<void>, missing: string | undefined): Promise<void> {
  for (const signal of ['SIGINT', 'SIGTERM'])
    process.once(signal, () => neverRejects(endAll().then(() => process.exit(1))));
  try {
    if (missing !== undefined) throw new Error(missing);
    await run();
  } catch (error) {
    console.error(error);
    process.exitCode = 1;
  } finally {
    await endAll();
  }
}

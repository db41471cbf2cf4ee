import { endAll } from '../test/support/processes.ts';

/** Runs a benchmark to its exit code and never leaves a process behind. */
export async function run(main: () => Promise<number>): Promise<void> {
  try {
    process.exitCode = await main();
  } catch (error) {
    console.error(error);
    process.exitCode = 1;
  } finally {
    await endAll();
  }
}

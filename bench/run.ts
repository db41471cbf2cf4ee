import { endAll } from '../test/support/processes.ts';

/** Runs a benchmark to its exit code; whatever happens, no process of it is left. */
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

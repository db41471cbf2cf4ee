/** A program that an operator might put before an engine instead of this one. */
import type { Target } from '../client.ts';

/** The model's name at every engine of this benchmark: some peers must be told it. */
export { MODEL } from '../engine-answers.ts';

export interface Peer {
  name: string;
  /** What of our work it does here as well; a figure is read with that in mind. */
  does: { keys: boolean; usage: boolean; tunnel: boolean };
  /**
   * Makes it runnable, from the ordinary registries where it is not there yet, and gives the version that will run.
   * @throws Error that says what is missing
   */
  install(): Promise<string>;
  /** Starts it before the engine at `url`; `endAll` ends it. Resolves when it answers. */
  start(url: string): Promise<Target>;
}

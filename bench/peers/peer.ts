/** A program that an operator might use instead of this one. */
import type { Target } from '../client.ts';

/** The model's name at every engine of this benchmark, which some peers must know. */
export { MODEL } from '../engine-answers.ts';

export interface Peer {
  name: string;
  /** Which of our features it provides here as well, for a fair reading of the figures. */
  does: { keys: boolean; usage: boolean; tunnel: boolean };
  /**
   * Installs it from the usual registries if it is missing, and returns its version.
   * @throws Error that says what is missing
   */
  install(): Promise<string>;
  /** Starts it before the engine at `url`; `endAll` ends it. Resolves when it answers. */
  start(url: string): Promise<Target>;
}

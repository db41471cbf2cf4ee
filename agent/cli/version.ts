import manifest from '../../package.json' with { type: 'json' };
import { EXIT_DONE } from './exit.ts';
import type { Io } from './io.ts';

/** As in `otela-agent version` and in the node's record. */
export const AGENT_VERSION = manifest.version;

export function versionCommand(io: Io): number {
  io.out(`otela-agent ${AGENT_VERSION}`);
  return EXIT_DONE;
}

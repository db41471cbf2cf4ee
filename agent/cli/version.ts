import manifest from '../../package.json' with { type: 'json' };
import { JSON_FLAG } from './choose.ts';
import { EXIT_DONE } from './exit.ts';
import { type FlagSpec, onlyFlags } from './flags.ts';
import type { Io } from './io.ts';

/** As in `otela-agent version` and in the node's record. */
export const AGENT_VERSION = manifest.version;

export const FLAGS: readonly FlagSpec[] = [JSON_FLAG];

export function versionCommand(argv: readonly string[], io: Io): number {
  const flags = onlyFlags(argv, FLAGS);
  io.out(flags.has('json') ? JSON.stringify({ version: AGENT_VERSION }) : `otela-agent ${AGENT_VERSION}`);
  return EXIT_DONE;
}

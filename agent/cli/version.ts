import { EXIT_DONE } from '../config/exit.ts';
import { type FlagSpec, onlyFlags } from '../config/flags.ts';
import { AGENT_VERSION } from '../life/agent-version.ts';
import { JSON_FLAG } from './choose.ts';
import type { Io } from './io.ts';

export const FLAGS: readonly FlagSpec[] = [JSON_FLAG];

export function versionCommand(argv: readonly string[], io: Io): number {
  const flags = onlyFlags(argv, FLAGS);
  io.out(flags.has('json') ? JSON.stringify({ version: AGENT_VERSION }) : `otela-agent ${AGENT_VERSION}`);
  return EXIT_DONE;
}

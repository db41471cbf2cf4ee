/** `otela-agent models`: what this user's engines on this machine serve. */

import { EXIT_DONE } from '../config/exit.ts';
import { type FlagSpec, onlyFlags } from '../config/flags.ts';
import type { Env } from '../config/sources.ts';
import { chosenAgents, JSON_FLAG, NO_AGENT, SESSION_FLAG } from './choose.ts';
import type { Io } from './io.ts';

export const FLAGS: readonly FlagSpec[] = [SESSION_FLAG, JSON_FLAG];

export async function modelsCommand(argv: readonly string[], env: Env, io: Io): Promise<number> {
  const flags = onlyFlags(argv, FLAGS);
  const agents = await chosenAgents(flags, env);
  const models = agents.flatMap(({ session, status }) => status.models.map((model) => ({ session, ...model })));
  if (flags.has('json')) {
    io.out(JSON.stringify(models, null, 2));
    return EXIT_DONE;
  }
  if (agents.length === 0) io.out(NO_AGENT);
  else if (models.length === 0) io.out('no model yet: the engine has not answered /v1/models');
  for (const { id, state, context_length, quantization, engine, revision } of models) {
    const facts = [context_length && `${context_length} tokens`, quantization, engine, revision].filter(Boolean);
    io.out([id, state, ...facts].join('  '));
  }
  return EXIT_DONE;
}

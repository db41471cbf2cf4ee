/** `otela-agent models`: the models that this user's engines serve on this machine. */

import { type Command, EXIT_DONE, parseLine } from '../../shared/command-line/index.ts';
import type { CommandContext } from './command-context.ts';
import { describeModel } from './describe-model.ts';
import { LOCAL_AGENTS_USAGE, NO_AGENT, SESSION_HINT, selectAgents } from './select-agents.ts';

export const MODELS_COMMAND: Command<CommandContext> = {
  summary: 'list the models that your agents on this machine serve',
  ...LOCAL_AGENTS_USAGE,
  run: modelsCommand,
};

async function modelsCommand(argv: readonly string[], { env, io }: CommandContext): Promise<number> {
  const { values } = parseLine(argv, LOCAL_AGENTS_USAGE.flags, SESSION_HINT);
  const agents = await selectAgents(values.session, env);
  const models = agents.flatMap(({ session, status }) => status.models.map((model) => ({ session, ...model })));
  if (values.json) {
    io.out(JSON.stringify(models, null, 2));
    return EXIT_DONE;
  }
  if (agents.length === 0) io.out(NO_AGENT);
  else if (models.length === 0) io.out('no model yet: the engine has not answered /v1/models');
  for (const { session: _, ...model } of models) io.out(describeModel(model));
  return EXIT_DONE;
}

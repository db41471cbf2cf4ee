/** `otela-agent models`: what this user's engines on this machine serve. */

import { type Command, EXIT_DONE, JSON_FLAG, parseLine } from '../../shared/command-line/index.ts';
import { chosenAgents, NAMED_BY_SESSION, NO_AGENT, SESSION_FLAG } from './choose.ts';
import type { Context } from './context.ts';

const FLAGS = { ...SESSION_FLAG, ...JSON_FLAG };

export const MODELS: Command<Context> = {
  summary: 'what they serve',
  examples: `[--session PREFIX] [--json]

Asks every agent of yours that runs on this machine, or the one whose session begins with PREFIX. In status * marks this agent in the network.
While an engine loads, status shows since when, and its last line. For a script, until all models are there:
  until otela-agent models --json | jq -e 'length > 0 and all(.state == "ready")' > /dev/null; do sleep 5; done
Into a running Slurm job:
  srun --jobid 4711 --overlap otela-agent status`,
  flags: FLAGS,
  run: modelsCommand,
};

async function modelsCommand(argv: readonly string[], { env, io }: Context): Promise<number> {
  const { values } = parseLine(argv, FLAGS, NAMED_BY_SESSION);
  const agents = await chosenAgents(values.session, env);
  const models = agents.flatMap(({ session, status }) => status.models.map((model) => ({ session, ...model })));
  if (values.json) {
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

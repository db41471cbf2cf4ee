/** `otela-gateway settings`: what holds for the whole gateway. */
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { type Command, EXIT_DONE, UsageError } from '../command.ts';
import { ask, CONNECTION, doorTo } from './client.ts';

export const SETTINGS: Command = {
  summary: 'what holds for the whole gateway',
  examples: `[set NAME VALUE]

  otela-gateway settings                                       all of them
  otela-gateway settings set default_trust marked              a word or JSON; null is the default
  otela-gateway settings set oidc "$(cat oidc.json)"`,
  verbs: ['set'],
  flags: CONNECTION,
  run: settingsCommand,
};

const settingsSchema = z.looseObject({ object: z.literal('settings') });

async function settingsCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({ args, options: CONNECTION, allowPositionals: true });
  const door = doorTo('/admin/settings', values);
  const [verb, name, value, ...rest] = positionals;
  if (verb === undefined) return show(await ask(door, 'GET', ''), values.json === true);
  if (verb !== 'set' || name === undefined || value === undefined || rest.length > 0)
    throw new UsageError('usage: otela-gateway settings | settings set NAME VALUE');
  return show(await ask(door, 'PATCH', '', { [name]: parsed(value) }), values.json === true);
}

function show(answer: unknown, json: boolean): number {
  const { object: _, ...settings } = settingsSchema.parse(answer);
  if (json) console.log(JSON.stringify(settings));
  else for (const [name, value] of Object.entries(settings)) console.log(`${name}  ${JSON.stringify(value)}`);
  return EXIT_DONE;
}

/** A word that is no JSON is meant as it stands. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

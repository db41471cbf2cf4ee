/** `otela-gateway settings`: what holds for the whole gateway. */
import * as z from 'zod';
import { type Command, EXIT_DONE, parseLine, UsageError } from '../../shared/command-line/index.ts';
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

async function settingsCommand(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, CONNECTION, { words: 3 });
  const door = doorTo('/admin/settings', values);
  const [verb, name, value] = words;
  if (verb === undefined) return show(await ask(door, 'GET', ''), values.json);
  if (verb !== 'set' || name === undefined || value === undefined)
    throw new UsageError('usage: otela-gateway settings | settings set NAME VALUE');
  return show(await ask(door, 'PATCH', '', { [name]: parsed(value) }), values.json);
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

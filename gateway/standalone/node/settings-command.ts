/** `otela-gateway settings`: what holds for the whole gateway. */
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { ask, CONNECTION, doorTo, UsageError } from './client.ts';

export const SETTINGS_USAGE = `otela-gateway settings                         all of them
otela-gateway settings set NAME VALUE          VALUE as JSON or as a plain word; null: the default`;

const settingsSchema = z.looseObject({ object: z.literal('settings') });

export async function settingsCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({ args, options: CONNECTION, allowPositionals: true });
  const door = doorTo('/admin/settings', values);
  const [verb, name, value, ...rest] = positionals;
  if (verb === undefined) return show(await ask(door, 'GET', ''), values.json === true);
  if (verb !== 'set' || name === undefined || value === undefined || rest.length > 0)
    throw new UsageError(SETTINGS_USAGE);
  return show(await ask(door, 'PATCH', '', { [name]: parsed(value) }), values.json === true);
}

function show(answer: unknown, json: boolean): number {
  const { object: _, ...settings } = settingsSchema.parse(answer);
  if (json) console.log(JSON.stringify(settings));
  else for (const [name, value] of Object.entries(settings)) console.log(`${name}  ${JSON.stringify(value)}`);
  return 0;
}

/** A word that is no JSON is meant as it stands. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

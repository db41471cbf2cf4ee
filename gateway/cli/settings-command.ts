/** `otela-gateway settings`: the settings of the whole gateway. */
import * as z from 'zod';
import { type Command, EXIT_DONE, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { nearestName } from '../../shared/text/nearest-name.ts';
import { askGateway, CONNECTION_FLAGS, targetAt } from './api-client.ts';
import { Table } from './table.ts';

export const SETTINGS_COMMAND: Command = {
  summary: 'show or change settings of the whole gateway',
  examples: `[set NAME VALUE]

  otela-gateway settings                                       show all settings
  otela-gateway settings set default_trust marked              VALUE is a word or JSON; null restores the default
  otela-gateway settings set oidc "$(cat oidc.json)"`,
  verbs: ['set'],
  flags: CONNECTION_FLAGS,
  run: settingsCommand,
};

const settingsSchema = z.looseObject({ object: z.literal('settings') });

async function settingsCommand(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, CONNECTION_FLAGS, { words: 3 });
  const target = targetAt('/admin/settings', values);
  const [verb, name, value] = words;
  const sets = verb === 'set' && name !== undefined && value !== undefined;
  if (!sets && verb !== undefined) throw new UsageError('usage: otela-gateway settings | settings set NAME VALUE');
  const before = settingsOf(await askGateway(target, 'GET', ''));
  if (!sets) return show(before, values.json);
  if (!Object.hasOwn(before, name)) throw new UsageError(noSetting(name, Object.keys(before)));
  const after = settingsOf(await askGateway(target, 'PATCH', '', { [name]: parsed(value) }));
  if (values.json) return show(after, true);
  const [was, is] = [JSON.stringify(before[name]), JSON.stringify(after[name])];
  console.log(was === is ? `${name}  ${is}, unchanged` : `${name}  ${was} → ${is}`);
  return EXIT_DONE;
}

function noSetting(name: string, known: readonly string[]): string {
  const near = nearestName(name, known);
  return `there is no setting "${name}"; ${near === undefined ? `there are ${known.join(', ')}` : `did you mean ${near}?`}`;
}

function settingsOf(answer: unknown): Record<string, unknown> {
  const { object: _, ...settings } = settingsSchema.parse(answer);
  return settings;
}

function show(settings: Record<string, unknown>, json: boolean): number {
  if (json) {
    console.log(JSON.stringify(settings));
    return EXIT_DONE;
  }
  const table = new Table(['setting', 'value']);
  for (const [name, value] of Object.entries(settings)) table.add([name, JSON.stringify(value)]);
  table.flush();
  return EXIT_DONE;
}

/** Parses a value. Text that is not JSON is taken literally. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** `otela-gateway why REQUEST_ID`: the timeline of a request. */
import * as z from 'zod';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { printable } from '../../shared/terminal/printable.ts';
import { askGateway, CONNECTION_FLAGS, targetAt } from './api-client.ts';

const storiesSchema = z.object({
  data: z.array(
    z.looseObject({
      request_id: z.string(),
      usage_id: z.string(),
      steps: z.array(z.object({ at: z.string(), where: z.string(), text: z.string() })),
      not_known: z.array(z.string()),
    }),
  ),
});

const FLAGS = {
  hours: { default: '24', value: 'N', help: 'hours of records to search, at most 48' },
  to: { value: 'TIME', help: 'end of the searched hours, for example 2026-11-01T12:00:00Z; default: now' },
  ...CONNECTION_FLAGS,
} as const satisfies Flags;

export const WHY_COMMAND: Command = {
  summary: 'show the timeline of a request: waits, attempts, nodes and its end',
  examples: `REQUEST_ID [--hours N] [--to TIME]

  otela-gateway why 0b6a2c9e-…                                 the x-request-id of the response, also of an error
  otela-gateway why 0b6a2c9e-… --to 2026-11-01T12:00:00Z       a request in the 24 hours before that time
The last lines name missing data. Timelines are kept for 7 days, usage records for 400 days.`,
  flags: FLAGS,
  run: whyCommand,
};

const WHERE_CHARS = 8;

async function whyCommand(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, FLAGS, { words: 1 });
  const [id] = words;
  if (id === undefined) throw new UsageError('usage: otela-gateway why REQUEST_ID [--hours N] [--to TIME]');
  const target = targetAt('/admin/requests', values);
  const { hours, to } = values;
  const query = new URLSearchParams({ hours, ...(to === undefined ? {} : { to }) });
  const { data } = storiesSchema.parse(await askGateway(target, 'GET', `/${encodeURIComponent(id)}?${query}`));
  for (const [n, story] of data.entries()) {
    if (target.json) {
      console.log(JSON.stringify(story));
      continue;
    }
    if (n > 0) console.log('');
    const { request_id, usage_id, steps, not_known } = story;
    console.log(
      printable(`request ${request_id}${usage_id === request_id ? '' : `  (in usage and trace: ${usage_id})`}`),
    );
    for (const { at, where, text } of steps) console.log(printable(`${at}  ${where.padEnd(WHERE_CHARS)}  ${text}`));
    for (const text of not_known) console.log(printable(`unknown: ${text}`));
  }
  return EXIT_DONE;
}

import * as z from 'zod';
import { UsageError } from '../../shared/command-line/index.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import { printable } from '../../shared/terminal/printable.ts';
import { type GatewayAccess, readResource } from './gateway-access.ts';

const HOURS = 24;

const useSchema = z.object({ limit: z.string(), allowed: z.number(), used: z.number(), model: z.string().optional() });
const limitsSchema = z.object({ key: z.array(useSchema), user: z.array(useSchema), project: z.array(useSchema) });
const hoursSchema = z.object({
  data: z.array(
    z.object({
      requests: z.number(),
      failed: z.number(),
      prompt_tokens: z.number(),
      completion_tokens: z.number(),
    }),
  ),
});

/** `otela usage`: the caller's usage of the last day, and the rest of each limit. */
export async function usageCommand(access: GatewayAccess, json: boolean, out: Output): Promise<void> {
  const [limits, hours] = await Promise.all([
    readResource(access, '/admin/me/limits').then((body) => limitsSchema.safeParse(body)),
    readResource(access, `/admin/me/hours?hours=${HOURS}`).then((body) => hoursSchema.safeParse(body)),
  ]);
  if (!limits.success || !hours.success)
    throw new UsageError(`${access.gateway} is not a gateway, or of another version: its response is not usage`);
  const sum = { requests: 0, failed: 0, prompt_tokens: 0, completion_tokens: 0 };
  for (const hour of hours.data.data)
    for (const name of Object.keys(sum) as (keyof typeof sum)[]) sum[name] += hour[name];
  if (json) return out.print(JSON.stringify({ last_day: sum, limits: limits.data }));
  out.print(
    `Last ${HOURS} hours: ${sum.requests} requests, ${sum.failed} failed, ${sum.prompt_tokens} input tokens, ${sum.completion_tokens} output tokens`,
  );
  const owners = { key: 'this key', user: 'your keys in this project', project: 'the project' } as const;
  const lines = (Object.keys(owners) as (keyof typeof owners)[]).flatMap((owner) =>
    limits.data[owner].map(({ limit, allowed, used, model }) => {
      const left = Math.max(0, allowed - used);
      return `${limit.replaceAll('_', ' ')}, ${owners[owner]}${model === undefined ? '' : `, ${model}`}: ${left} of ${allowed} left`;
    }),
  );
  if (lines.length === 0) out.print('No limits.');
  for (const line of lines) out.print(printable(line));
}

/** What Cloudflare tells of a Worker that may run already. */
import * as z from 'zod';
import { jsonFromOutput, type Wrangler, WranglerError } from './wrangler.ts';

/** Of Cloudflare's API: there is no such Worker; and how wrangler says it. */
const NO_WORKER = /\[code: 100(07|90)\]|Worker "[^"]*" not found/i;

/** What was asked for would harm a Worker that runs: exit code 2. */
export class DeployRefusedError extends Error {}

/** Names of its secrets; undefined where there is no such Worker. */
export async function secretsOf(wrangler: Wrangler, where: readonly string[]): Promise<string[] | undefined> {
  try {
    const listed = z
      .array(z.object({ name: z.string() }))
      .parse(jsonFromOutput(await wrangler(['secret', 'list', ...where])));
    return listed.map(({ name }) => name);
  } catch (error) {
    if (error instanceof WranglerError && NO_WORKER.test(error.said)) return undefined;
    throw error;
  }
}

/** Whether a Worker of that name runs, deployed from anywhere. */
export async function workerExists(wrangler: Wrangler, name: string): Promise<boolean> {
  return (await secretsOf(wrangler, ['--name', name, '--env='])) !== undefined;
}

/** What Cloudflare reports about a Worker that may already exist. */
import * as z from 'zod';
import { jsonFromOutput, type Wrangler, WranglerError } from './wrangler.ts';

/** Matches the codes of Cloudflare's API for a missing Worker, and wrangler's message for it. */
const NO_WORKER = /\[code: 100(07|90)\]|Worker "[^"]*" not found/i;

/** The deployment would harm a running Worker, so nothing was changed. Exit code 2. */
export class DeployRefusedError extends Error {}

/** Returns the names of the Worker's secrets. Undefined: there is no such Worker. */
export async function secretsOf(wrangler: Wrangler, where: readonly string[]): Promise<string[] | undefined> {
  try {
    const listed = z
      .array(z.object({ name: z.string() }))
      .parse(jsonFromOutput(await wrangler(['secret', 'list', ...where])));
    return listed.map(({ name }) => name);
  } catch (error) {
    if (error instanceof WranglerError && NO_WORKER.test(error.output)) return undefined;
    throw error;
  }
}

/** True if a Worker of this name exists, deployed from any machine. */
export async function workerExists(wrangler: Wrangler, name: string): Promise<boolean> {
  return (await secretsOf(wrangler, ['--name', name, '--env='])) !== undefined;
}

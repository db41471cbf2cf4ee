/** The line that installs an agent on a provider's machine. */
import * as z from 'zod';
import { type ApiTarget, askGateway, ClientError } from './api-client.ts';

const settingsSchema = z.object({ public_url: z.string().nullable() });

/** Returns the gateway's public URL, or the URL of this command if the gateway has none, or does not show it. */
export async function publicUrl(target: ApiTarget): Promise<string> {
  try {
    const { public_url } = settingsSchema.parse(await askGateway({ ...target, path: '/admin/settings' }, 'GET', ''));
    return (public_url ?? target.url).replace(/\/+$/, '');
  } catch (error) {
    // Providers may create tokens, but only operators read settings.
    if (error instanceof ClientError) return target.url.replace(/\/+$/, '');
    throw error;
  }
}

/** @param token a join token, or a command of the shell in quotes that prints it */
export function installLine(url: string, token: string): string {
  return `curl -fsSL ${url}/install | OTELA_TOKEN=${token} sh`;
}

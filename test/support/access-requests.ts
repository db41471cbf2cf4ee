/** A person that logs in at a real identity provider and asks for access to models. */
import * as z from 'zod';
import type { Gateway } from './gateway.ts';
import { Browser, CLIENT_ID, CLIENT_SECRET, Identity } from './identity.ts';
import { freePort } from './processes.ts';

const requestSchema = z.object({ id: z.string() });

/** The address of the provider, and what the gateway's environment needs for it. */
export async function identityEnvironment(): Promise<{ port: number; env: Record<string, string> }> {
  const port = await freePort('127.0.0.1');
  return { port, env: { OIDC_CLIENT_SECRETS: JSON.stringify({ [`http://127.0.0.1:${port}`]: CLIENT_SECRET }) } };
}

/** Returns a function that requests access to a restricted model, with a secret reason. It returns the request's id. */
export async function openAsker(gateway: Gateway, port: number): Promise<(model: string) => Promise<string>> {
  const { issuer } = await Identity.start({
    port,
    redirectUri: `${gateway.url}/login/callback`,
    people: { ada: { name: 'Ada' } },
  });
  const oidc = [{ issuer, name: 'The university', client_id: CLIENT_ID, admits: 'everybody' }];
  await gateway.admin('PATCH', 'settings', { oidc });
  const browser = new Browser('ada');
  await browser.go(`${gateway.url}/login?return_to=/admin/me`);
  return async (model) => {
    await gateway.admin('PATCH', `catalogue/${encodeURIComponent(model)}`, { access: [] });
    const asked = await browser.once(`${gateway.url}/admin/access-requests`, {
      method: 'POST',
      headers: { origin: gateway.url, 'content-type': 'application/json' },
      body: JSON.stringify({ model, reason: 'a secret reason' }),
    });
    const text = await asked.text();
    if (asked.status !== 201) throw new Error(text);
    return requestSchema.parse(JSON.parse(text)).id;
  };
}

/** Webhooks as a target of events, by the Standard Webhooks specification 1.0.0. */
import { errorText } from '../../shared/text/error-text.ts';
import type { Env } from '../env.ts';
import { parseSecrets } from '../platform/webhook-secrets.ts';
import type { Webhook } from '../settings/notification-settings.ts';
import type { EventMessage, EventTarget } from './event-target.ts';

const ANSWER_MS = 10_000;
const encoder = new TextEncoder();

export function webhookTarget(
  { WEBHOOK_SECRETS }: Pick<Env, 'WEBHOOK_SECRETS'>,
  { url, events }: Webhook,
): EventTarget {
  const secret = parseSecrets(WEBHOOK_SECRETS)?.get(url);
  return {
    id: url,
    label: `the webhook at ${new URL(url).origin}`,
    events,
    send: async (message, now) =>
      secret === undefined ? 'WEBHOOK_SECRETS has no secret for it' : post(url, secret, message, now),
  };
}

async function post(url: string, secret: string, { id, body }: EventMessage, now: number): Promise<string | undefined> {
  const headers = await signedHeaders(secret, { id, atS: Math.floor(now / 1_000), body });
  try {
    // A redirect could lead to a server that the operator did not choose.
    const signal = AbortSignal.timeout(ANSWER_MS);
    const response = await fetch(url, { method: 'POST', headers, body, signal, redirect: 'manual' });
    await response.body?.cancel();
    return response.ok ? undefined : `status ${response.status}`;
  } catch (error) {
    return errorText(error);
  }
}

/** Returns the headers of a delivery. `atS`: seconds since the epoch. */
export async function signedHeaders(
  secret: string,
  { id, atS, body }: EventMessage & { atS: number },
): Promise<Record<string, string>> {
  const bytes = Uint8Array.from(atob(secret.slice('whsec_'.length)), (char) => char.charCodeAt(0));
  const key = await crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
  const mac = await crypto.subtle.sign('HMAC', key, encoder.encode(`${id}.${atS}.${body}`));
  const signature = btoa(String.fromCharCode(...new Uint8Array(mac)));
  return {
    'content-type': 'application/json',
    'user-agent': 'opentela',
    'webhook-id': id,
    'webhook-timestamp': String(atS),
    'webhook-signature': `v1,${signature}`,
  };
}

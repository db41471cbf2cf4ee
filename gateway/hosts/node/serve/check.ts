/** Whether a gateway really answers: through its public socket, with its store. */
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { setTimeout as delay } from 'node:timers/promises';

const READY_MS = 20_000;
const RETRY_MS = 50;
const ANSWER_MS = 5_000;

/** Resolves when `/healthz` answers and the admin key opens a list of D1. Rejects with the last answer when it never does. */
export async function checkReady(url: string, adminKey: string): Promise<void> {
  const deadline = Date.now() + READY_MS;
  for (;;) {
    const health = await status(new URL('/healthz', url), {});
    const store =
      health === '200'
        ? await status(new URL('/admin/keys?limit=1', url), { authorization: `Bearer ${adminKey}` })
        : '';
    if (store === '200') return;
    if (Date.now() > deadline)
      throw new Error(`the gateway started but does not answer: /healthz ${health}, /admin/keys ${store}`);
    await delay(RETRY_MS);
  }
}

/** `200`, or what else came. */
function status(url: URL, headers: Record<string, string>): Promise<string> {
  // An unspecified address means "all of them" to listen on; to reach it, loopback is one of them.
  const host = url.hostname.replace('0.0.0.0', '127.0.0.1').replace('[::]', '[::1]');
  const target = new URL(url);
  target.hostname = host;
  return new Promise((resolve) => {
    // The certificate is for clients' name of this machine; here we talk to ourselves.
    const options = { headers, agent: false, timeout: ANSWER_MS, rejectUnauthorized: false };
    const request = (target.protocol === 'https:' ? httpsRequest : httpRequest)(target, options, (response) => {
      response.resume();
      resolve(String(response.statusCode));
    });
    request.on('timeout', () => request.destroy(new Error(`no answer within ${ANSWER_MS} ms`)));
    request.on('error', (error) => resolve(error.message));
    request.end();
  });
}

/** Whether a gateway really answers: through its public socket, with its store. */
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { setTimeout as delay } from 'node:timers/promises';
import { toldWait } from '../../../../shared/patience/told-wait.ts';
import { after } from '../../../after.ts';
import { patience } from '../../../patience.ts';

/** By this process's patience: it answers within a second where its core is its own. */
const READY_MS = 60_000;
const RETRY_MS = 50;
const ANSWER_MS = 60_000;

/**
 * Resolves when `/healthz` answers and the admin key opens a list of D1. Says now and then that it waits; rejects with the last answer when
 * it never does.
 */
export function checkReady(url: string, adminKey: string, log: (line: string) => void): Promise<void> {
  return toldWait(answers(url, adminKey), after, (seconds) => log(`waiting for the first answer for ${seconds} s`));
}

async function answers(url: string, adminKey: string): Promise<void> {
  const deadline = patience.now() + READY_MS;
  for (;;) {
    const health = await status(new URL('/healthz', url), {});
    const store =
      health === '200'
        ? await status(new URL('/admin/keys?limit=1', url), { authorization: `Bearer ${adminKey}` })
        : '';
    if (store === '200') return;
    if (patience.now() > deadline)
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

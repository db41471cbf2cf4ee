/** Checks that a gateway answers, through its public port and with its database. */
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { setTimeout as delay } from 'node:timers/promises';
import { waitWithProgress } from '../../../../shared/timing/wait-with-progress.ts';
import { startTimer } from '../../../platform/start-timer.ts';
import { waitClock } from '../../../platform/wait-clock.ts';

/**
 * Maximum wait, by this process's wait clock. Usually a gateway answers within a second; a busy machine takes longer.
 */
const READY_MS = 60_000;
const RETRY_MS = 50;
const ANSWER_MS = 60_000;

/**
 * Resolves when `/healthz` answers and the operator's key can list from D1. Logs periodically that it waits. Rejects
 * with the last response if the gateway never answers.
 */
export function checkReady(url: string, adminKey: string, log: (line: string) => void): Promise<void> {
  return waitWithProgress(answers(url, adminKey), startTimer, (seconds) =>
    log(`waiting for the first response for ${seconds} s`),
  );
}

async function answers(url: string, adminKey: string): Promise<void> {
  const deadline = waitClock.now() + READY_MS;
  for (;;) {
    const health = await status(new URL('/healthz', url), {});
    const store =
      health === '200'
        ? await status(new URL('/admin/keys?limit=1', url), { authorization: `Bearer ${adminKey}` })
        : '';
    if (store === '200') return;
    if (waitClock.now() > deadline)
      throw new Error(`the gateway started but does not answer: /healthz ${health}, /admin/keys ${store}`);
    await delay(RETRY_MS);
  }
}

/** Returns `200`, or a description of what was received instead. */
function status(url: URL, headers: Record<string, string>): Promise<string> {
  // A gateway that listens on an unspecified address listens on all addresses, so it can be reached at loopback.
  const host = url.hostname.replace('0.0.0.0', '127.0.0.1').replace('[::]', '[::1]');
  const target = new URL(url);
  target.hostname = host;
  return new Promise((resolve) => {
    // The certificate is for the machine's public name, but this connects to loopback, so the name is not checked.
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

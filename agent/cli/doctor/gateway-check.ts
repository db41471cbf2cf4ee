/**
 * Checks the path to a gateway by a request that admits no agent: OpenTela refuses `POST /agent/admit` without a token
 * with its own message.
 */

import { type CheckResult, checkFailed, checkPassed, checkWarning } from '../../../shared/terminal/check-result.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import { PROTOCOL_VERSION } from '../../../shared/wire/protocol-constants.ts';
import type { Env } from '../../config/setting.ts';
import { proxyFor } from '../../host/proxy-variables.ts';
import { errorMessageOf, type GatewayAnswer, type postToGateway } from '../../tunnel/gateway-request.ts';

const ANSWER_MS = 10_000;
/** Largest accepted clock difference. Tickets and certificates tolerate an hour at each end. */
const SKEW_MAX_MS = 60_000;

interface GatewayCheck {
  gateway: URL;
  env: Env;
  /** Address of the agent with `--offer-relay` that this agent would use as a proxy. */
  relay?: URL | undefined;
  post: typeof postToGateway;
  /** Milliseconds since the epoch. */
  now(): number;
}

/** Findings about the path and, if the gateway sent its time, about the clock. Never rejects. */
export async function checkGateway({ gateway, env, relay, post, now }: GatewayCheck): Promise<CheckResult[]> {
  const what = `gateway ${gateway.host}`;
  let way = 'directly';
  try {
    const proxy = relay ?? proxyFor(gateway, env);
    if (proxy !== undefined) way = `through the ${relay === undefined ? 'proxy' : 'relay'} ${proxy.host}`;
    const askedAt = now();
    const answer = await post({
      gateway,
      path: '/agent/admit',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ protocol: PROTOCOL_VERSION, public_key: Buffer.alloc(32).toString('base64url') }),
      env: { ...env },
      proxy: relay,
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    return [judge(what, way, answer), ...clock(answer.date, askedAt, now())];
  } catch (error) {
    return [unreachable(what, way, error)];
  }
}

function judge(what: string, way: string, answer: GatewayAnswer): CheckResult {
  const said = errorMessageOf(answer);
  if (answer.status === 401 && answer.text.includes('invalid_api_key')) return checkPassed(what, `answers, ${way}`);
  if (answer.status === 426)
    return checkFailed(what, `speaks another protocol: ${said}`, 'Upgrade the older of the two.');
  if (answer.status === 407) return checkFailed(what, `the proxy wants a name and a password (${way})`, PASSWORD);
  if (answer.status >= 500)
    return checkWarning(
      what,
      `answers ${answer.status}: ${said}`,
      'Its operator should look; an agent tries again by itself.',
    );
  return checkFailed(
    what,
    `something answers ${answer.status}, and it is no OpenTela gateway: ${said.slice(0, 120)}`,
    'Check --gateway; on some networks a login page or a proxy answers for others (NO_PROXY, HTTPS_PROXY).',
  );
}

function clock(date: string | undefined, askedAt: number, answeredAt: number): CheckResult[] {
  const theirs = Date.parse(date ?? '');
  if (Number.isNaN(theirs)) return [];
  // The gateway read its clock between the request and the answer, and sent whole seconds.
  const ahead = Math.max(0, askedAt - theirs - 1000);
  const behind = Math.max(0, theirs - answeredAt);
  const off = Math.max(ahead, behind);
  if (off <= SKEW_MAX_MS) return [checkPassed('clock', 'agrees with the gateway’s')];
  const found = `${Math.round(off / 1000)} s ${ahead > behind ? 'ahead of' : 'behind'} the gateway’s`;
  return [checkWarning('clock', found, 'Ask the site to set it (NTP): ends of jobs and tickets are told by it.')];
}

const FIXES: readonly (readonly [RegExp, string])[] = [
  [
    /ENOTFOUND|EAI_AGAIN/,
    'No such name from here: check --gateway, or set HTTPS_PROXY if the site has a proxy that knows names.',
  ],
  [/ECONNREFUSED/, 'Nothing listens there: check host and port of --gateway.'],
  [/certificate|CERT|self.signed/i, 'Its certificate is not trusted here: put the CA’s file into NODE_EXTRA_CA_CERTS.'],
];

const PASSWORD = 'Put them into HTTPS_PROXY: http://name:password@host:port.';

/** Fixes for a gateway that is reached through a proxy. */
const PROXY_FIXES: typeof FIXES = [
  [/answered 407/, PASSWORD],
  [
    /answered \d+/,
    'The proxy does not let it pass: ask for the gateway’s host and port, or name the host in NO_PROXY.',
  ],
  [/certificate|CERT|self.signed/i, 'What answers is not trusted here: put the CA’s file into NODE_EXTRA_CA_CERTS.'],
  [/./, 'The proxy itself does not answer: check HTTPS_PROXY, or name the gateway’s host in NO_PROXY.'],
];
const RELAY_FIXES: typeof FIXES = [
  [/answered 407/, 'The relay was started with another join token: both need the same.'],
  [/answered \d+/, 'The relay passes to its own gateways alone: start it with the same --gateway.'],
  [/./, 'Start the agent with --offer-relay there, with --mesh HOST:PORT as --relay says.'],
];

function unreachable(what: string, way: string, error: unknown): CheckResult {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  const said = errorText(error);
  const fixes = way.includes('relay') ? RELAY_FIXES : way.includes('proxy') ? PROXY_FIXES : FIXES;
  const fix = fixes.find(([pattern]) => pattern.test(`${code} ${said}`))?.[1];
  return checkFailed(
    what,
    `not reached ${way}: ${said || code}`,
    fix ??
      'Compute nodes often have no way out: ask for outbound 443, set HTTPS_PROXY, or use --relay on a login node.',
  );
}

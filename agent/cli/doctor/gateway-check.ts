/**
 * Checks the path to a gateway by a `POST /agent/admit` without a token. The request admits no agent, and the refusal's
 * text shows whether an OpenTela gateway sent it.
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
  const message = errorMessageOf(answer);
  if (answer.status === 401 && answer.text.includes('invalid_api_key')) return checkPassed(what, `answers, ${way}`);
  if (answer.status === 426)
    return checkFailed(
      what,
      `uses a different protocol version: ${message}`,
      'Upgrade the agent or the gateway, whichever is older.',
    );
  if (answer.status === 407) return checkFailed(what, `the proxy requires a name and a password (${way})`, PASSWORD);
  if (answer.status >= 500)
    return checkWarning(
      what,
      `answers ${answer.status}: ${message}`,
      'Report this to the operator of the gateway. An agent retries automatically.',
    );
  return checkFailed(
    what,
    `answers ${answer.status}, but is not an OpenTela gateway: ${message.slice(0, 120)}`,
    'Check --gateway. On some networks a login page or a proxy answers instead (NO_PROXY, HTTPS_PROXY).',
  );
}

function clock(date: string | undefined, askedAt: number, answeredAt: number): CheckResult[] {
  const theirs = Date.parse(date ?? '');
  if (Number.isNaN(theirs)) return [];
  // The gateway read its clock at some time between the request and the answer, and sent it in whole seconds. Only a
  // difference beyond this uncertainty counts.
  const ahead = Math.max(0, askedAt - theirs - 1000);
  const behind = Math.max(0, theirs - answeredAt);
  const off = Math.max(ahead, behind);
  if (off <= SKEW_MAX_MS) return [checkPassed('clock', 'agrees with the clock of the gateway')];
  const found = `${Math.round(off / 1000)} s ${ahead > behind ? 'ahead of' : 'behind'} the gateway’s`;
  return [
    checkWarning('clock', found, 'Ask the site to set this clock (NTP): the ends of jobs and tickets depend on it.'),
  ];
}

const FIXES: readonly (readonly [RegExp, string])[] = [
  [
    /ENOTFOUND|EAI_AGAIN/,
    'This machine cannot resolve the name: check --gateway, or set HTTPS_PROXY if the site has a proxy that resolves names.',
  ],
  [/ECONNREFUSED/, 'Nothing listens there: check the host and port of --gateway.'],
  [
    /certificate|CERT|self.signed/i,
    'This machine does not trust its certificate: set NODE_EXTRA_CA_CERTS to the file of the CA.',
  ],
];

const PASSWORD = 'Add them to HTTPS_PROXY: http://name:password@host:port.';

/** Fixes for a gateway that is reached through a proxy. */
const PROXY_FIXES: typeof FIXES = [
  [/answered 407/, PASSWORD],
  [
    /answered \d+/,
    'The proxy does not allow this connection: ask its operator to allow the gateway’s host and port, or add the host to NO_PROXY.',
  ],
  [
    /certificate|CERT|self.signed/i,
    'This machine does not trust the certificate: set NODE_EXTRA_CA_CERTS to the file of the CA.',
  ],
  [/./, 'The proxy does not answer: check HTTPS_PROXY, or add the gateway’s host to NO_PROXY.'],
];
const RELAY_FIXES: typeof FIXES = [
  [/answered 407/, 'The relay was started with a different join token: both agents need the same one.'],
  [/answered \d+/, 'The relay connects only to its own gateways: start it with the same --gateway.'],
  [/./, 'Start the agent at that address with --offer-relay and --mesh HOST:PORT, the same HOST:PORT as in --relay.'],
];

function unreachable(what: string, way: string, error: unknown): CheckResult {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  const message = errorText(error);
  const fixes = way.includes('relay') ? RELAY_FIXES : way.includes('proxy') ? PROXY_FIXES : FIXES;
  const fix = fixes.find(([pattern]) => pattern.test(`${code} ${message}`))?.[1];
  return checkFailed(
    what,
    `cannot be reached ${way}: ${message || code}`,
    fix ??
      'Compute nodes often have no access to the internet: ask for outbound port 443, set HTTPS_PROXY, or use --relay with an agent on a login node.',
  );
}

/** The way to a gateway, by a question that admits nobody: `POST /agent/admit` without a token is refused in OpenTela's own words. */

import { bad, type Finding, good, odd } from '../../../shared/terminal/finding.ts';
import { PROTOCOL_VERSION } from '../../../shared/wire/limits.ts';
import { proxyFor } from '../../host/proxy.ts';
import { type GatewayAnswer, messageOf, type postToGateway } from '../../tunnel/gateway-request.ts';
import type { Env } from '../sources.ts';

const ANSWER_MS = 10_000;
/** Tickets and certificates begin and end by the clock; an hour's reserve stands behind each. */
const SKEW_MAX_MS = 60_000;

export interface GatewayCheck {
  gateway: URL;
  env: Env;
  post: typeof postToGateway;
  /** Milliseconds since the epoch. */
  now(): number;
}

/** Findings about the way and, where the gateway told the time, about the clock. Never rejects. */
export async function checkGateway({ gateway, env, post, now }: GatewayCheck): Promise<Finding[]> {
  const what = `gateway ${gateway.host}`;
  let way = 'directly';
  try {
    const proxy = proxyFor(gateway, env);
    if (proxy !== undefined) way = `through the proxy ${proxy.host}`;
    const askedAt = now();
    const answer = await post({
      gateway,
      path: '/agent/admit',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ protocol: PROTOCOL_VERSION, public_key: Buffer.alloc(32).toString('base64url') }),
      env: { ...env },
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    return [judge(what, way, answer), ...clock(answer.date, askedAt, now())];
  } catch (error) {
    return [unreachable(what, way, error)];
  }
}

function judge(what: string, way: string, answer: GatewayAnswer): Finding {
  const said = messageOf(answer);
  if (answer.status === 401 && answer.text.includes('invalid_api_key')) return good(what, `answers, ${way}`);
  if (answer.status === 426) return bad(what, `speaks another protocol: ${said}`, 'Upgrade the older of the two.');
  if (answer.status === 407)
    return bad(
      what,
      `the proxy wants a name and a password (${way})`,
      'Put them into HTTPS_PROXY: http://name:password@host:port.',
    );
  if (answer.status >= 500)
    return odd(what, `answers ${answer.status}: ${said}`, 'Its operator should look; an agent tries again by itself.');
  return bad(
    what,
    `something answers ${answer.status}, and it is no OpenTela gateway: ${said.slice(0, 120)}`,
    'Check --gateway; on some networks a login page or a proxy answers for others (NO_PROXY, HTTPS_PROXY).',
  );
}

function clock(date: string | undefined, askedAt: number, answeredAt: number): Finding[] {
  const theirs = Date.parse(date ?? '');
  if (Number.isNaN(theirs)) return [];
  // Its clock is read somewhere between the question and the answer, and told in whole seconds.
  const ahead = Math.max(0, askedAt - theirs - 1000);
  const behind = Math.max(0, theirs - answeredAt);
  const off = Math.max(ahead, behind);
  if (off <= SKEW_MAX_MS) return [good('clock', 'agrees with the gateway’s')];
  const found = `${Math.round(off / 1000)} s ${ahead > behind ? 'ahead of' : 'behind'} the gateway’s`;
  return [odd('clock', found, 'Ask the site to set it (NTP): ends of jobs and tickets are told by it.')];
}

const FIXES: readonly (readonly [RegExp, string])[] = [
  [
    /ENOTFOUND|EAI_AGAIN/,
    'No such name from here: check --gateway, or set HTTPS_PROXY if the site has a proxy that knows names.',
  ],
  [/ECONNREFUSED/, 'Nothing listens there: check host and port of --gateway.'],
  [/certificate|CERT|self.signed/i, 'Its certificate is not trusted here: put the CA’s file into NODE_EXTRA_CA_CERTS.'],
  [/proxy/i, 'The proxy does not let it pass: check HTTPS_PROXY, or name the host in NO_PROXY.'],
];

function unreachable(what: string, way: string, error: unknown): Finding {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  const said = error instanceof Error ? error.message : String(error);
  const fix = FIXES.find(([pattern]) => pattern.test(`${code} ${said}`))?.[1];
  return bad(
    what,
    `not reached ${way}: ${said || code}`,
    fix ??
      'Compute nodes often have no way out: ask for outbound 443, set HTTPS_PROXY, or use --relay on a login node.',
  );
}

/**
 * The address of the local OpenAI endpoint, the providers that it trusts, and the providers that this node serves over
 * the mesh.
 */

import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { UsageError } from '../../shared/command-line/index.ts';
import { readPolicyFile } from '../../shared/routing/policies/operator-policies.ts';
import { isShippedPolicy, SHIPPED_POLICIES, type ShippedPolicy } from '../../shared/routing/policies/shipped.ts';
import type { Policy } from '../../shared/routing/policy.ts';
import { PROVIDER_ID_PATTERN, PROVIDER_LIST_MAX } from '../../shared/routing/trust.ts';
import { errorText } from '../../shared/text/error-text.ts';
import type { IngressConfig } from '../ingress/service.ts';
import { parseAddress } from '../mesh/channel/dial.ts';

/** Throws UsageError. */
export function ingressConfig(
  listen: string | undefined,
  trust: readonly string[],
  serveTo: readonly string[],
  policy?: string,
): IngressConfig {
  if (listen === undefined && trust.length > 0) throw new UsageError('--trust needs --ingress HOST:PORT');
  if (listen === undefined && policy !== undefined) throw new UsageError('--policy needs --ingress HOST:PORT');
  return {
    listen: listen === undefined ? undefined : listenAddress('--ingress', listen),
    trust: trust.length === 0 ? undefined : providers('--trust', trust),
    serveTo: serveTo.length === 0 ? undefined : providers('--serve-to', serveTo),
    policy: policy === undefined ? undefined : policyNamed(policy),
  };
}

/** A shipped policy by its name, or the first policy in an operator's file. Throws UsageError, with file and line. */
function policyNamed(text: string): ShippedPolicy | Policy {
  if (isShippedPolicy(text)) return text;
  if (!/[/\\]|\.[cm]?[jt]s$/.test(text))
    throw new UsageError(
      `--policy: "${text}" is none of ${SHIPPED_POLICIES.join(', ')}, and no file such as ./policy.ts`,
    );
  try {
    const [policy] = readPolicyFile(resolve(text), createRequire(import.meta.url));
    if (policy !== undefined) return policy;
  } catch (error) {
    throw new UsageError(`--policy ${errorText(error)}`);
  }
  throw new UsageError(`--policy ${text}: it has none`);
}

/** `HOST:PORT`, `[::1]:PORT`, or `:PORT` and `PORT` for this machine only; port 0: any free one. Throws UsageError. */
export function listenAddress(flag: string, text: string): { host: string; port: number } {
  const bare = /^:?(\d{1,5})$/.exec(text)?.[1];
  if (bare !== undefined && Number(bare) <= 65_535) return { host: '127.0.0.1', port: Number(bare) };
  const free = /^(.*):0$/.exec(text)?.[1];
  const address = parseAddress(free === undefined ? text : `${free}:1`);
  if (address === undefined) throw new UsageError(`${flag}: "${text}" is not HOST:PORT`);
  return free === undefined ? address : { ...address, port: 0 };
}

function providers(flag: string, texts: readonly string[]): string[] {
  const ids = texts.flatMap((text) => text.split(',')).map((id) => id.trim());
  for (const id of ids) {
    if (!PROVIDER_ID_PATTERN.test(id)) throw new UsageError(`${flag}: "${id}" is no provider such as eth or eth@peer`);
  }
  if (ids.length > PROVIDER_LIST_MAX) throw new UsageError(`${flag}: at most ${PROVIDER_LIST_MAX} providers`);
  return [...new Set(ids)];
}

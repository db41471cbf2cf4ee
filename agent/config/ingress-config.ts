/**
 * The address of the local OpenAI endpoint, the providers to which it may send requests, and the providers whose
 * requests this node serves over the mesh.
 */

import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { UsageError } from '../../shared/command-line/index.ts';
import {
  BUILT_IN_POLICIES,
  type BuiltInPolicy,
  isBuiltInPolicy,
} from '../../shared/routing/policies/built-in-policies.ts';
import { readPolicyFile } from '../../shared/routing/policies/operator-policies.ts';
import type { Policy } from '../../shared/routing/routing-policy.ts';
import { PROVIDER_ID_PATTERN, PROVIDER_LIST_MAX } from '../../shared/routing/trusted-providers.ts';
import { errorText } from '../../shared/text/error-text.ts';
import type { IngressConfig } from '../ingress/request-service.ts';
import { listenAddress } from './listen-address.ts';
import { listSetting, type SettingReader, valueSetting } from './setting.ts';

export const INGRESS_ADDRESS = {
  listen: valueSetting({
    flag: 'ingress',
    env: 'OTELA_INGRESS',
    value: 'HOST:PORT',
    help: 'serve an OpenAI endpoint on this address, over the mesh and without a gateway; its key is in STATE/ingress.key',
    parse: (text) => listenAddress('--ingress', text),
  }),
};

export const INGRESS_ACCESS = {
  trust: listSetting({
    flag: 'trust',
    env: 'OTELA_TRUST',
    value: 'PROVIDER',
    help: 'providers of nodes that may receive requests from the ingress; repeat, or separate with commas',
    otherwise: 'your own',
    parse: (texts) => providers('--trust', texts),
  }),
  policy: valueSetting({
    flag: 'policy',
    env: 'OTELA_POLICY',
    value: 'NAME|FILE.ts',
    help: 'routing policy of the ingress: random, round-robin, weighted, least-load, prefix-affinity, score, or a TypeScript file',
    otherwise: 'least-load; prefix-affinity for conversations and long prompts',
    parse: policyNamed,
  }),
  serveTo: listSetting({
    flag: 'serve-to',
    env: 'OTELA_SERVE_TO',
    value: 'PROVIDER',
    help: 'providers of ingresses that may send requests to this node; repeat, or separate with commas',
    otherwise: 'your own',
    parse: (texts) => providers('--serve-to', texts),
  }),
};

/** @throws UsageError */
export function ingressConfig(reader: SettingReader): IngressConfig {
  for (const setting of [INGRESS_ACCESS.trust, INGRESS_ACCESS.policy])
    if (reader.has(setting) && !reader.has(INGRESS_ADDRESS.listen))
      throw new UsageError(`--${setting.flag} needs --ingress HOST:PORT`);
  return { ...reader.read(INGRESS_ADDRESS), ...reader.read(INGRESS_ACCESS) };
}

/** A built-in policy by its name, or the first policy in an operator's file. @throws UsageError with file and line */
function policyNamed(text: string): BuiltInPolicy | Policy {
  if (isBuiltInPolicy(text)) return text;
  if (!/[/\\]|\.[cm]?[jt]s$/.test(text))
    throw new UsageError(
      `--policy: "${text}" is neither one of ${BUILT_IN_POLICIES.join(', ')} nor a file such as ./policy.ts`,
    );
  try {
    const [policy] = readPolicyFile(resolve(text), createRequire(import.meta.url));
    if (policy !== undefined) return policy;
  } catch (error) {
    throw new UsageError(`--policy ${errorText(error)}`);
  }
  throw new UsageError(`--policy ${text}: the file exports no policy`);
}

/** Undefined if the flag is not given. */
function providers(flag: string, texts: readonly string[]): string[] | undefined {
  if (texts.length === 0) return undefined;
  const ids = texts.flatMap((text) => text.split(',')).map((id) => id.trim());
  for (const id of ids) {
    if (!PROVIDER_ID_PATTERN.test(id))
      throw new UsageError(`${flag}: "${id}" is not a provider such as eth or eth@peer`);
  }
  if (ids.length > PROVIDER_LIST_MAX)
    throw new UsageError(`${flag}: at most ${PROVIDER_LIST_MAX} providers are allowed`);
  return [...new Set(ids)];
}

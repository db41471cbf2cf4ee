/** The gateways that an agent serves, and the join token. */
import { UsageError } from '../../shared/command-line/index.ts';
import { proxyFor } from '../host/proxy.ts';
import { GATEWAYS_MAX } from '../tunnel/admission.ts';
import { sourcePrecedence } from './precedence.ts';
import { type Env, readSecretFile, requireHeaderWord, type SettingValues } from './setting-sources.ts';
import { toUsageError } from './to-usage-error.ts';

/** @throws UsageError */
export function gatewaysConfig(texts: readonly string[], env: Env, warnings: string[]): URL[] {
  if (texts.length === 0) {
    throw new UsageError('no gateway: say --gateway https://… or set OTELA_GATEWAY');
  }
  if (texts.length > GATEWAYS_MAX) throw new UsageError(`at most ${GATEWAYS_MAX} gateways`);
  const urls = new Map<string, URL>();
  for (const text of texts) {
    const url = gatewayUrl(text);
    toUsageError(() => proxyFor(url, env));
    if (url.protocol === 'http:' && !isLoopback(url.hostname)) {
      warnings.push(`${url.href} is not encrypted: the token and every prompt travel in clear`);
    }
    urls.set(url.href, url);
  }
  return [...urls.values()];
}

/** @throws UsageError */
export function gatewayUrl(text: string): URL {
  const url = URL.parse(/^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `https://${text}`);
  if (!url || !['http:', 'https:', 'ws:', 'wss:'].includes(url.protocol) || url.hostname === '') {
    throw new UsageError(`--gateway: "${text}" is not an address such as https://gateway.example.org`);
  }
  if (url.username !== '' || url.password !== '')
    throw new UsageError('--gateway: a password in the address shows in logs; use --token-file');
  if (url.search !== '' || url.hash !== '')
    throw new UsageError(`--gateway: "${text}": only a path may follow the address`);
  // Users paste the address for OpenAI clients, which ends in /v1.
  url.pathname = url.pathname.replace(/\/v1\/*$/, '/');
  if (url.protocol.startsWith('ws')) url.protocol = url.protocol === 'ws:' ? 'http:' : 'https:';
  return url;
}

function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127\./.test(hostname);
}

/** @throws UsageError */
export function joinToken(settings: SettingValues, env: Env, warnings: string[]): string {
  const direct = settings.values.get('token');
  const file = settings.values.get('token-file');
  if (direct?.source === '--token')
    warnings.push('--token shows in ps to everybody on this node: use --token-file or OTELA_TOKEN');
  // The source with the higher precedence counts: a flag with a file overrides a variable with a token.
  const useFile = file && (!direct || sourcePrecedence(file.source) > sourcePrecedence(direct.source));
  if (!useFile && !direct) throw new UsageError('no token: say --token-file FILE or set OTELA_TOKEN');
  let value = direct?.values.at(-1) ?? '';
  if (useFile) {
    const read = readSecretFile('--token-file', file.values.at(-1) ?? '', env);
    warnings.push(...read.warnings);
    value = read.secret;
  }
  return requireHeaderWord('the token', value);
}

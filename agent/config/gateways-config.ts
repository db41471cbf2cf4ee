/** The gateways that an agent serves, and the join token. */
import { UsageError } from '../../shared/command-line/index.ts';
import { proxyFor } from '../host/proxy-variables.ts';
import { GATEWAYS_MAX } from '../tunnel/gateway-admission.ts';
import { readSecretFile, requireHeaderWord } from './secret-file.ts';
import {
  listSetting,
  type ParseContext,
  type SettingReader,
  sourcedText,
  sourcePrecedence,
  valueSetting,
} from './setting.ts';
import { toUsageError } from './to-usage-error.ts';

export const GATEWAY_SETTINGS = {
  gateways: listSetting({
    flag: 'gateway',
    env: 'OTELA_GATEWAY',
    value: 'URL',
    help: 'URL of a gateway to connect to; repeat, or separate with commas',
    commas: true,
    parse: parseGateways,
  }),
};

export const TOKEN_SETTINGS = {
  tokenFile: valueSetting({
    flag: 'token-file',
    env: 'OTELA_TOKEN_FILE',
    value: 'FILE',
    help: 'file with the join token (chmod 600)',
    parse: sourcedText,
  }),
  token: valueSetting({
    flag: 'token',
    env: 'OTELA_TOKEN',
    value: 'TOKEN',
    help: 'join token; it is visible in ps, so prefer --token-file',
    secret: true,
    parse: sourcedText,
  }),
};

/** @throws UsageError */
export function gatewaysConfig(reader: SettingReader): URL[] {
  const { gateways } = reader.read(GATEWAY_SETTINGS);
  if (gateways.length === 0)
    throw new UsageError('a gateway is missing: give --gateway https://… or set OTELA_GATEWAY');
  return gateways;
}

function parseGateways(texts: readonly string[], { env, warn }: ParseContext): URL[] {
  if (texts.length > GATEWAYS_MAX) throw new UsageError(`--gateway: at most ${GATEWAYS_MAX} gateways are allowed`);
  const urls = new Map<string, URL>();
  for (const text of texts) {
    const url = gatewayUrl(text);
    toUsageError(() => proxyFor(url, env));
    if (url.protocol === 'http:' && !isLoopback(url.hostname)) {
      warn(`${url.href} is not encrypted: the token and all prompts are sent in clear`);
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
  // Users paste the address from OpenAI clients, which ends in /v1.
  url.pathname = url.pathname.replace(/\/v1\/*$/, '/');
  if (url.protocol.startsWith('ws')) url.protocol = url.protocol === 'ws:' ? 'http:' : 'https:';
  return url;
}

function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127\./.test(hostname);
}

/** @throws UsageError */
export function joinToken(reader: SettingReader): string {
  const { token: direct, tokenFile: file } = reader.read(TOKEN_SETTINGS);
  if (direct?.source === '--token')
    reader.warn('all users of this machine can see --token in ps: use --token-file or OTELA_TOKEN');
  // If a file and a token are given, the source with the higher precedence counts. For example, a flag with a file
  // overrides a variable with a token.
  const useFile = file && (!direct || sourcePrecedence(file.source) > sourcePrecedence(direct.source));
  if (!useFile && !direct) throw new UsageError('a join token is missing: give --token-file FILE or set OTELA_TOKEN');
  const token = useFile ? readSecretFile('--token-file', file.text, reader) : (direct?.text ?? '');
  return requireHeaderWord('the token', token);
}

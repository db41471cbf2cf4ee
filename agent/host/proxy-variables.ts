/**
 * Finds the HTTP proxy for a URL from the environment variables that curl, Python and Go read. Their rules differ. They
 * agree on these: lower case takes precedence over upper case; `NO_PROXY` is a list of host suffixes with optional
 * ports; `*` switches proxies off; addresses may be given as CIDR blocks; loopback is never proxied.
 */
import { BlockList, isIP } from 'node:net';

/** The environment variables that `proxyFor` reads. */
export const PROXY_VARIABLES = [
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'ALL_PROXY',
  'NO_PROXY',
  'http_proxy',
  'https_proxy',
  'all_proxy',
  'no_proxy',
  'REQUEST_METHOD',
] as const;

type ProxyVariable = (typeof PROXY_VARIABLES)[number];
type Env = Readonly<Partial<Record<ProxyVariable, string | undefined>>>;

/** Undefined: connect directly. @throws Error if a variable cannot be parsed; the message never contains credentials */
export function proxyFor(url: URL, env: Env): URL | undefined {
  const secure = url.protocol === 'https:' || url.protocol === 'wss:';
  const names: ProxyVariable[] = secure ? ['https_proxy', 'HTTPS_PROXY'] : plainNames(env);
  const name = [...names, 'all_proxy' as const, 'ALL_PROXY' as const].find((n) => env[n]);
  const text = name === undefined ? undefined : env[name];
  if (name === undefined || text === undefined || isExempt(url, env.no_proxy || env.NO_PROXY || '')) return undefined;
  const proxy = URL.parse(text.includes('://') ? text : `http://${text}`);
  // If a password contains `/`, `?` or `#` unescaped, URL parsing ends the host inside the password, which would then
  // be dialed and logged.
  if (!proxy || proxy.hostname === '' || `${proxy.pathname}${proxy.search}${proxy.hash}`.includes('@'))
    throw new Error(
      `${name} is not an address such as http://proxy.example.org:3128; in its name and password / is written %2F, ? %3F, # %23 and % %25`,
    );
  if (proxy.protocol !== 'http:' && proxy.protocol !== 'https:') {
    throw new Error(`${name} names a ${proxy.protocol.slice(0, -1)} proxy; only http and https proxies are supported`);
  }
  return proxy;
}

/** The value of `proxy-authorization` (RFC 7617); undefined if the URL has neither name nor password. */
export function proxyAuthorization({ username, password }: URL): string | undefined {
  if (username === '' && password === '') return undefined;
  return `Basic ${Buffer.concat([decoded(username), Buffer.from(':'), decoded(password)]).toString('base64')}`;
}

/**
 * Decodes like curl: a `%` without two hexadecimal digits after it is a percent sign, and the bytes need not be UTF-8.
 */
function decoded(text: string): Buffer {
  const parts = text.split(/(%[\da-f]{2})/i);
  return Buffer.concat(
    parts.map((part, at) => (at % 2 === 1 ? Buffer.from(part.slice(1), 'hex') : Buffer.from(part, 'utf8'))),
  );
}

/** httpoxy (CVE-2016-5385): under CGI, HTTP_PROXY contains a request header, so any client can set it. */
function plainNames(env: Env): ProxyVariable[] {
  return env.REQUEST_METHOD ? ['http_proxy'] : ['http_proxy', 'HTTP_PROXY'];
}

function isExempt(url: URL, list: string): boolean {
  const host = url.hostname
    .replace(/^\[|\]$/g, '')
    .replace(/\.$/, '')
    .toLowerCase();
  if (host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'))) return true;
  const port = url.port || (url.protocol === 'https:' || url.protocol === 'wss:' ? '443' : '80');
  return list
    .toLowerCase()
    .split(/[\s,]+/)
    .some((entry) => entry !== '' && matches(entry, host, port));
}

function matches(entry: string, host: string, port: string): boolean {
  if (entry === '*') return true;
  if (entry.includes('/')) return inBlock(entry, host);
  const bracketed = /^\[([^\]]+)\](?::(\d+))?$/.exec(entry);
  const named = isIP(entry) === 6 ? [entry, entry, undefined] : (bracketed ?? /^(.*?)(?::(\d+))?$/.exec(entry));
  const [, name = '', wantedPort] = named ?? [];
  if (wantedPort !== undefined && wantedPort !== port) return false;
  const suffix = name.replace(/^\*?\./, '').replace(/\.$/, '');
  if (suffix === '') return false;
  // IP addresses have no subdomains: 10.1.0.0.1 is not below 1.0.0.1.
  return host === suffix || (isIP(host) === 0 && host.endsWith(`.${suffix}`));
}

function inBlock(entry: string, host: string): boolean {
  const [network = '', bits = ''] = entry.split('/');
  const family = isIP(network);
  if (family === 0 || isIP(host) !== family || !/^\d{1,3}$/.test(bits) || Number(bits) > (family === 4 ? 32 : 128))
    return false;
  const type = family === 4 ? 'ipv4' : 'ipv6';
  const block = new BlockList();
  block.addSubnet(network, Number(bits), type);
  return block.check(host, type);
}

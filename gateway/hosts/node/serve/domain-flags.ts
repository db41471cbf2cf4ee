/** The flags of `serve --domain NAME`: a public gateway with a certificate that it obtains and renews. */
import { isIP } from 'node:net';
import { type Flags, UsageError } from '../../../../shared/command-line/index.ts';
import type { AcmeOptions } from '../acme/automatic-certificate.ts';

/** Names of one certificate. Let's Encrypt allows a hundred; a gateway has one or two. */
const DOMAINS_MAX = 20;

export const DOMAIN_FLAGS = {
  domain: {
    value: 'NAME',
    repeat: true,
    help: 'public name of the gateway, for which it obtains a certificate; sets --host, --port 443 and --url',
  },
  'http-port': {
    default: '80',
    value: 'PORT',
    help: 'with --domain: port for the challenges of the certificate authority; sends browsers to HTTPS',
  },
  'acme-directory': { value: 'URL', help: "with --domain: the certificate authority; default: Let's Encrypt" },
  'acme-email': { value: 'ADDRESS', help: 'with --domain: address for warnings of the certificate authority' },
} as const satisfies Flags;

interface DomainValues {
  domain: readonly string[];
  'http-port': string;
  'acme-directory': string | undefined;
  'acme-email': string | undefined;
  data: string;
  host: string;
  port: string;
  url: string | undefined;
  'tls-cert': string | undefined;
  'tls-key': string | undefined;
  'cluster-address': string | undefined;
}

/** Sets the flags that a public gateway needs and that are not given. @throws UsageError */
export function withDomain<Values extends DomainValues>(values: Values, given: ReadonlyMap<string, unknown>): Values {
  const name = (values.domain[0] ?? '').toLowerCase();
  if (values['tls-cert'] !== undefined || values['tls-key'] !== undefined)
    throw new UsageError('--domain obtains a certificate; it excludes --tls-cert and --tls-key');
  if (values['cluster-address'] !== undefined)
    throw new UsageError('--domain is for one machine; of several machines, the load balancer has the certificate');
  const port = given.has('port') ? values.port : '443';
  const url = values.url ?? `https://${name}${port === '443' || port === '0' ? '' : `:${port}`}`;
  return { ...values, port, url, host: given.has('host') ? values.host : '0.0.0.0' };
}

const LABEL = '[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?';
const DOMAIN = new RegExp(`^(?=.{1,253}$)(?:${LABEL}\\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?$`);

const HMAC_KEY = /^[\w-]{16,1024}={0,2}$/;
const EMAIL = /^[^\s@,;:?&%]+@[^\s@,;:?&%]+$/;

/** @throws UsageError */
export function domainOptions(
  values: DomainValues,
  { ACME_EAB_KID: kid, ACME_EAB_HMAC_KEY: hmacKey }: NodeJS.ProcessEnv = process.env,
): Omit<AcmeOptions, 'log'> {
  const [first, ...others] = values.domain.map((name) => name.toLowerCase());
  const names: [string, ...string[]] = [first ?? '', ...others];
  const wrong = names.find((name) => !DOMAIN.test(name) || isIP(name) !== 0);
  if (wrong !== undefined) throw new UsageError(`--domain ${wrong} is not a name such as gw.example.org`);
  if (names.length > DOMAINS_MAX) throw new UsageError(`--domain can be given ${DOMAINS_MAX} times`);
  const httpPort = Number(values['http-port']);
  if (!/^\d{1,5}$/.test(values['http-port']) || httpPort > 65_535)
    throw new UsageError(`--http-port ${values['http-port']} is not a port number from 0 to 65535`);
  const { 'acme-directory': directoryUrl, 'acme-email': email } = values;
  if (directoryUrl !== undefined && URL.parse(directoryUrl)?.protocol !== 'https:')
    throw new UsageError(`--acme-directory ${directoryUrl} is not an https URL`);
  if (email !== undefined && !EMAIL.test(email)) throw new UsageError(`--acme-email ${email} is not an address`);
  if ((kid === undefined) !== (hmacKey === undefined))
    throw new UsageError('ACME_EAB_KID and ACME_EAB_HMAC_KEY must be set together');
  if (hmacKey !== undefined && !HMAC_KEY.test(hmacKey)) throw new UsageError('ACME_EAB_HMAC_KEY is not base64url');
  const binding = kid === undefined || hmacKey === undefined ? undefined : { kid, hmacKey };
  const url = URL.parse(values.url ?? '');
  if (url?.protocol !== 'https:') throw new UsageError(`--domain needs an https --url, not ${values.url}`);
  return {
    origin: url.origin,
    domains: names,
    data: values.data,
    host: values.host,
    httpPort,
    directoryUrl,
    email,
    binding,
  };
}

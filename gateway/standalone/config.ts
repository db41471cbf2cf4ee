/** workerd's configuration for a gateway on one machine, as Cap'n Proto text. */

/** One file of migrations/, applied as a whole or not at all. */
export interface Migration {
  name: string;
  statements: string[];
}

interface StandaloneConfig {
  /** Source of the gateway's bundle and of the D1 service. */
  gateway: string;
  d1: string;
  migrations: Migration[];
  /** Where workerd listens, as it wants it: `unix:/path` or `127.0.0.1:0`. */
  address: string;
  /** Where outlets listen, as workerd wants it: `unix:/path`. Without it all of an answer goes through workerd's own socket. */
  outlet?: string;
  /** Absolute directories, which exist. */
  objectsDir: string;
  d1Dir: string;
  /** The dashboard's files; without it there is no page. */
  assetsDir?: string;
  compatibilityDate: string;
  compatibilityFlags: string[];
  /** Taken from workerd's environment; names that are not set there do not belong here. */
  fromEnvironment: string[];
}

/** Object ids derive from this: with another key every object would start empty. */
const UNIQUE_KEY_PREFIX = 'opentela-';

/** Durable Object classes by the binding that the gateway knows them by. */
const OBJECTS = {
  TUNNEL: 'TunnelObject',
  REGISTRY: 'RegistryObject',
  LIMITS: 'LimitsObject',
  USAGE: 'UsageObject',
  QUEUE: 'QueueObject',
  OBSERVE: 'ObserveObject',
};

/** `internet`: where identity providers are asked. An institution's own stands in its own network, or on this very machine. */
export function workerdConfig(config: StandaloneConfig): string {
  const compatibility = `compatibilityDate = ${quote(config.compatibilityDate)}, compatibilityFlags = [${list(config.compatibilityFlags.map(quote))}]`;
  const namespace = (name: string) =>
    `(className = ${quote(name)}, uniqueKey = ${quote(UNIQUE_KEY_PREFIX + name)}, enableSql = true)`;
  const bindings = [
    ...Object.entries(OBJECTS).map(
      ([name, object]) => `(name = ${quote(name)}, durableObjectNamespace = ${quote(object)})`,
    ),
    `(name = "DB", wrapped = (moduleName = "cloudflare-internal:d1-api", innerBindings = [(name = "fetcher", service = "d1")]))`,
    ...(config.assetsDir === undefined ? [] : ['(name = "ASSETS", service = "assets")']),
    ...(config.outlet === undefined ? [] : ['(name = "OUTLET", service = "outlet")']),
    '(name = "OBJECTS_STAY", text = "on")',
    ...config.fromEnvironment.map((name) => `(name = ${quote(name)}, fromEnvironment = ${quote(name)})`),
  ];
  const assets =
    config.assetsDir === undefined ? '' : `\n    (name = "assets", disk = (path = ${quote(config.assetsDir)})),`;
  const outlet =
    config.outlet === undefined
      ? ''
      : `\n    (name = "outlet", external = (address = ${quote(config.outlet)}, http = ())),`;
  return `using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "gateway", worker = .gateway),
    (name = "d1", worker = .d1),
    (name = "internet", network = (allow = ["public", "private", "local"], tlsOptions = (trustBrowserCas = true))),
    (name = "objects-disk", disk = (path = ${quote(config.objectsDir)}, writable = true)),
    (name = "d1-disk", disk = (path = ${quote(config.d1Dir)}, writable = true)),${assets}${outlet}
  ],
  sockets = [(name = "http", address = ${quote(config.address)}, http = (), service = "gateway")],
);

const gateway :Workerd.Worker = (
  modules = [(name = "gateway.js", esModule = ${quote(config.gateway)})],
  ${compatibility},
  durableObjectNamespaces = [${list(Object.values(OBJECTS).map(namespace))}],
  durableObjectStorage = (localDisk = "objects-disk"),
  bindings = [${list(bindings)}],
);

const d1 :Workerd.Worker = (
  modules = [(name = "d1.js", esModule = ${quote(config.d1)})],
  ${compatibility},
  durableObjectNamespaces = [${namespace('D1Store')}],
  durableObjectStorage = (localDisk = "d1-disk"),
  bindings = [
    (name = "STORE", durableObjectNamespace = "D1Store"),
    (name = "MIGRATIONS", json = ${quote(JSON.stringify(config.migrations))}),
  ],
);
`;
}

function list(items: string[]): string {
  return items.join(', ');
}

/** A Cap'n Proto text literal. Bytes above 127 pass as they are; control characters must be escaped. */
export function quote(text: string): string {
  const escaped = text.replace(/["\\\p{Cc}]/gu, (char) => {
    if (char === '"' || char === '\\') return `\\${char}`;
    if (char === '\n') return '\\n';
    return [...new TextEncoder().encode(char)].map((byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join('');
  });
  return `"${escaped}"`;
}

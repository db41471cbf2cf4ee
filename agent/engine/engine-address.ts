/** The engine's address, from the agent's flags and the engine's command line. */
import { modelSchema } from '../../shared/lattice/node-record.ts';
import type { TranslatedApi } from '../../shared/openai/translation/translation.ts';
import { commandWords, flagValue } from './engine-command.ts';
import { type EngineKind, engineKind } from './engine-kinds.ts';

/** The address on this machine to which requests are sent. */
export interface EngineTarget {
  /** Scheme, host and port, such as `http://127.0.0.1:8000`. */
  origin: string;
  /** Empty, or a path without a trailing slash, such as `/llm`. */
  pathPrefix: string;
  /** The engine's API key, sent as `Authorization: Bearer`. */
  key?: string;
  /** Kind of engine, which decides some paths. Absent until the engine answers. */
  engine?: string;
  /** The models of an engine without `/v1/models`: at least one, at most STATED_MODELS_MAX. */
  models?: readonly string[];
  /** Absent: `/health`. */
  healthPath?: string;
  /** Absent: `/metrics`. */
  metricsPath?: string;
  /**
   * The prefill engines that compute the prompts of this engine's requests: at least one, at most PREFILLS_MAX.
   */
  prefills?: readonly PrefillTarget[];
  /** APIs that the agent answers from the engine's /v1/chat/completions. Absent: none. */
  translates?: readonly TranslatedApi[];
}

/** A prefill engine, which is a disaggregated pair with each decode engine that uses it. */
export interface PrefillTarget {
  origin: string;
  pathPrefix: string;
  key?: string;
  /** SGLang's --disaggregation-bootstrap-port, at which the decode engine asks for the prompt's keys and values. */
  bootstrapPort: number;
}

/** SGLang's default for `bootstrapPort`. */
export const BOOTSTRAP_PORT = 8998;

/** Maximum prefill engines of one decode engine. The agent probes each of them. */
const PREFILLS_MAX = 64;

/** Maximum models of an engine without `/v1/models`. */
const STATED_MODELS_MAX = 64;

interface AddressHints {
  url?: string | undefined;
  port?: number | undefined;
  key?: string | undefined;
  command?: readonly string[] | undefined;
  /** Addresses of the prefill engines. */
  prefillUrls?: readonly string[] | undefined;
  bootstrapPort?: number | undefined;
  models?: readonly string[] | undefined;
  healthPath?: string | undefined;
  metricsPath?: string | undefined;
  translates?: readonly TranslatedApi[] | undefined;
}

/** Undefined if there is no engine. @throws Error with a message for the user */
export function parseEngineTarget(hints: AddressHints): EngineTarget | undefined {
  const { prefillUrls = [], bootstrapPort = BOOTSTRAP_PORT } = hints;
  const key = hints.key === undefined ? {} : { key: hints.key };
  const found = engineAddress(hints);
  const address = found && { ...found, ...ownPaths(hints) };
  if (prefillUrls.length === 0) return address && { ...address, ...key };
  if (address === undefined) throw new Error('--prefill-url needs a decode engine: give a command or --engine-url');
  const prefills = prefillUrls.map((url) => {
    const prefill = { ...parseEngineUrl('--prefill-url', url), ...key, bootstrapPort };
    if (prefill.origin === address.origin && prefill.pathPrefix === address.pathPrefix)
      throw new Error(
        `--prefill-url: ${url} is the address of the engine itself; give the address of the prefill engine`,
      );
    return prefill;
  });
  if (new Set(prefills.map(({ origin, pathPrefix }) => origin + pathPrefix)).size < prefills.length)
    throw new Error('--prefill-url: an address is given twice');
  if (prefills.length > PREFILLS_MAX) throw new Error(`--prefill-url: there may be at most ${PREFILLS_MAX}`);
  return { ...address, ...key, prefills };
}

/** What an engine has in another way than those that the agent knows. */
function ownPaths(hints: AddressHints): Pick<EngineTarget, 'models' | 'healthPath' | 'metricsPath' | 'translates'> {
  const { models = [], healthPath, metricsPath, translates = [] } = hints;
  if (models.length > STATED_MODELS_MAX) throw new Error(`--engine-model: there may be at most ${STATED_MODELS_MAX}`);
  return {
    ...(translates.length > 0 && { translates }),
    ...(models.length > 0 && { models: models.map(checkedModel) }),
    ...(healthPath !== undefined && { healthPath: checkedPath('--engine-health-path', healthPath) }),
    ...(metricsPath !== undefined && { metricsPath: checkedPath('--engine-metrics-path', metricsPath) }),
  };
}

function checkedModel(id: string): string {
  if (modelSchema.shape.id.safeParse(id).success) return id;
  throw new Error(`--engine-model: "${id}" is not a valid name of a model`);
}

/** Printable ASCII without a fragment, because it becomes a part of a request line. */
function checkedPath(flag: string, path: string): string {
  if (/^\/[\x21\x22\x24-\x7e]{0,255}$/.test(path)) return path;
  throw new Error(`${flag}: "${path}" is not a path such as /health`);
}

function engineAddress(hints: AddressHints): { origin: string; pathPrefix: string } | undefined {
  if (hints.url !== undefined) return parseEngineUrl('--engine-url', hints.url);
  if (!hints.command) {
    return hints.port === undefined ? undefined : { origin: `http://127.0.0.1:${hints.port}`, pathPrefix: '' };
  }
  const words = commandWords(hints.command);
  const kind = engineKind(words);
  const port = hints.port ?? commandPort(words, kind);
  return { origin: `http://${reachableHost(flagValue(words, kind?.hostFlag ?? '--host'))}:${port}`, pathPrefix: '' };
}

function parseEngineUrl(flag: string, text: string): { origin: string; pathPrefix: string } {
  const url = URL.parse(text);
  if (!url || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    throw new Error(`${flag}: "${text}" is not an http:// or https:// address`);
  }
  if (url.username !== '' || url.password !== '')
    throw new Error(`${flag}: pass the API key with --engine-key-file, not in the URL`);
  if (url.search !== '' || url.hash !== '') throw new Error(`${flag}: only a path may follow the address`);
  // Users copy the address from an OpenAI client, so it ends in /v1. `pathPrefix` is the path above /v1.
  return { origin: url.origin, pathPrefix: url.pathname.replace(/\/+$/, '').replace(/\/v1$/, '') };
}

function commandPort(words: readonly string[], kind: EngineKind | undefined): number {
  const flags = kind?.portFlags ?? ['--port'];
  const own = flagValue(words, ...flags);
  if (own !== undefined) {
    if (!/^\d{1,5}$/.test(own) || Number(own) < 1 || Number(own) > 65_535) {
      throw new Error(`the command's ${flags.join(' or ')} "${own}" is not a number; give --engine-port N too`);
    }
    return Number(own);
  }
  if (kind !== undefined) return kind.port;
  throw new Error(`the port of "${words[0] ?? ''}" is unknown: give --engine-port N before the --`);
}

/**
 * The host at which the engine can be reached. An engine that listens on one address only does not answer on loopback.
 */
function reachableHost(host: string | undefined): string {
  if (host === undefined || host === '' || host === '0.0.0.0' || host.includes('$')) return '127.0.0.1';
  if (host === '::' || host === '[::]') return '[::1]';
  return host.includes(':') && !host.startsWith('[') ? `[${host}]` : host;
}

/** The host and port of an engine on this machine that uses plain HTTP; undefined: it is elsewhere, or uses TLS. */
export function loopbackAddress(origin: string): { host: string; port: number } | undefined {
  const url = URL.parse(origin);
  if (url === null || url.protocol !== 'http:') return undefined;
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const isLocal = host === 'localhost' || host === '::1' || /^127\.\d+\.\d+\.\d+$/.test(host);
  return isLocal ? { host, port: Number(url.port || 80) } : undefined;
}

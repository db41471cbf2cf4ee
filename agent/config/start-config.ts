/** The settings of `otela-agent start`, checked: from here on they are typed. */

import { accessSync, constants, existsSync } from 'node:fs';
import { join } from 'node:path';
import { UsageError } from '../../shared/command-line/index.ts';
import { OWN_LABELS_MAX, RESERVED_PREFIX } from '../../shared/deployment/labels.ts';
import { ID_PATTERN } from '../../shared/lattice/node.ts';
import { MANIFEST_FILE, SIGNATURE_FILE } from '../../shared/release/release.ts';
import { EVIDENCE_KIND, EVIDENCE_KINDS_MAX } from '../../shared/seal/evidence.ts';
import { readTemplates, type Templates } from '../deploy/templates.ts';
import { type EngineTarget, engineTarget } from '../engine/address.ts';
import { shellWrapped } from '../engine/command.ts';
import { type Fact, parseFact } from '../engine/facts.ts';
import { type FatalPatterns, fatalPatterns } from '../engine/fatal.ts';
import { type EngineLimits, MAX_WAITING } from '../engine/saturation.ts';
import { engineSpan, type Span } from '../engine/span.ts';
import { batchJob } from '../host/jobs/which.ts';
import { proxyFor } from '../host/proxy.ts';
import type { IngressConfig } from '../ingress/service.ts';
import { DelegateKey } from '../seal/delegate-key.ts';
import { EvidenceHelper } from '../seal/evidence.ts';
import { GATEWAYS_MAX } from '../tunnel/admission.ts';
import type { NodeWeightsConfig } from '../weights/config.ts';
import { parseDuration } from './duration.ts';
import { type FunctionsConfig, functionsConfig } from './functions-config.ts';
import { ingressConfig } from './ingress-config.ts';
import { type MeshConfig, meshConfig } from './mesh-config.ts';
import { type MetricsConfig, metricsConfig } from './metrics-config.ts';
import { rank, withoutOverruled } from './overruled.ts';
import type { SettingName } from './settings.ts';
import { type Env, readSecretFile, type Settings } from './sources.ts';
import { weightsConfig } from './weights-config.ts';

export interface StartConfig {
  gateways: URL[];
  token: string;
  cluster: string | undefined;
  region: string | undefined;
  tier: 'stable' | 'volatile';
  facts: Fact[];
  labels: Record<string, string>;
  /** Ready for exec: a single argument with spaces has become `sh -c`. */
  command: string[] | undefined;
  /** Undefined: joins idle. */
  engine: EngineTarget | undefined;
  /** What the network may have this agent run; undefined: nothing. */
  templates: Templates | undefined;
  /** What it is given at once. */
  limits: EngineLimits;
  /** Undefined: no function of a user runs here. */
  functions: FunctionsConfig | undefined;
  /** Undefined: none are kept here. */
  weights: NodeWeightsConfig | undefined;
  span: Span;
  /** Lines of the engine's output that end this node. */
  fatal: FatalPatterns;
  /** When the engine is asked for a token, and how long it may take. */
  probe: { afterMs: number; timeoutMs: number };
  mesh: MeshConfig;
  ingress: IngressConfig;
  /** Undefined: no port. */
  metrics: MetricsConfig | undefined;
  /** Undefined: chosen from the job's length. 0: never. */
  drainBeforeMs: number | undefined;
  drainTimeoutMs: number | undefined;
  /** Gateways may read the output of engine and agent. */
  remoteLogs: boolean;
  logDirectory: string | undefined;
  /** When this node ends by the operator's word; undefined: as its batch job does. */
  endsAt: Date | undefined;
  /** What vouches for this node's encryption keys; undefined: no one does. */
  delegate: DelegateKey | undefined;
  evidence: EvidenceHelper | undefined;
  /** Where manifest and signature of this program's release are; undefined: beside it. */
  releaseDir: string | undefined;
  warnings: string[];
}

/** Longer than most prefills take. */
const PROBE_AFTER_MS = 120_000;
/** With the above ten minutes: sooner than gateways give a first byte up, and longer than prefills of a million tokens. */
const PROBE_TIMEOUT_MS = 480_000;

const LABELS_MAX = 32;
/** Labels share the registry's 4 KiB with the list of models. */
const LABELS_MAX_BYTES = 1024;

/** Throws UsageError. */
export function startConfig(given: Settings, command: string[] | undefined, env: Env): StartConfig {
  const settings = withoutOverruled(given, command);
  const warnings = [...settings.warnings];
  const one = (name: SettingName) => settings.values.get(name)?.values.at(-1);
  const many = (name: SettingName) => settings.values.get(name)?.values ?? [];
  const duration = (name: SettingName) => {
    const text = one(name);
    return text === undefined ? undefined : parseDuration(text, sourceOf(settings, name));
  };
  checkCommand(command);
  const span = engineSpan(command, env, isOn('span-nodes', one('span-nodes') ?? 'false'));
  const registers = span.role === 'register';
  if (one('environment') !== undefined && one('accept-deployments') !== undefined)
    throw new UsageError(
      '--environment is for the engine of one agent: programs of --accept-deployments do not run in it',
    );
  const weights = weightsConfig(
    {
      sources: many('weights'),
      environment: one('environment'),
      directory: one('weights-dir'),
      limit: one('weights-max'),
      rate: one('weights-rate'),
      uploads: one('weights-uploads'),
      clusters: many('weights-clusters'),
    },
    env,
  );
  // Other ranks of an engine get their weights from neighbours, too.
  const joins = registers || weights !== undefined;
  return {
    gateways: joins ? gateways(many('gateway'), env, warnings) : [],
    token: joins ? token(settings, env, warnings) : '',
    cluster: id('cluster', one('cluster')),
    region: id('region', one('region')),
    tier: tier(one('tier'), env),
    facts: many('fact').map((text) => asUsage(() => parseFact(text))),
    labels: labels(many('label'), one('accept-deployments') === undefined ? LABELS_MAX : LABELS_MAX - OWN_LABELS_MAX),
    command: command && command.length > 0 ? shellWrapped(command) : undefined,
    engine: registers ? engine(settings, command, env, warnings) : undefined,
    templates: templates(one('accept-deployments'), span),
    limits: {
      maxRunning: count('max-running', one('max-running'), 1),
      maxWaiting:
        one('max-waiting') === 'none' ? undefined : (count('max-waiting', one('max-waiting'), 0) ?? MAX_WAITING),
    },
    functions: functionsConfig({
      allow: many('allow-functions'),
      python: one('functions-python'),
      loaded: one('functions-loaded'),
      memory: one('functions-memory'),
      timeout: one('functions-timeout'),
    }),
    weights,
    span,
    fatal: asUsage(() => fatalPatterns(many('fatal-pattern'))),
    probe: {
      afterMs: duration('engine-probe-after') ?? PROBE_AFTER_MS,
      timeoutMs: duration('engine-probe-timeout') ?? PROBE_TIMEOUT_MS,
    },
    mesh: meshConfig({
      listen: one('mesh'),
      peers: many('peer'),
      relay: one('relay'),
      offerRelay: isOn('offer-relay', one('offer-relay') ?? 'false'),
      peerReleaseKeys: many('peer-release-keys'),
      oldestPeer: one('oldest-peer'),
    }),
    metrics: metricsConfig(one('metrics'), one('metrics-token-file')),
    ingress: ingressConfig(one('ingress'), many('trust'), many('serve-to'), one('policy')),
    drainBeforeMs: duration('drain-before'),
    drainTimeoutMs: duration('drain-timeout'),
    remoteLogs: !isOn('no-remote-logs', one('no-remote-logs') ?? 'false'),
    logDirectory: one('log-dir'),
    endsAt: endsAt(one('ends-at')),
    delegate: delegateKey(one('delegate-file')),
    evidence: evidenceHelper(one('evidence-command'), one('evidence-kinds')),
    releaseDir: releaseDir(one('release-dir')),
    warnings,
  };
}

function sourceOf(settings: Settings, name: SettingName): string {
  return settings.values.get(name)?.source ?? `--${name}`;
}

function asUsage<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

function templates(directory: string | undefined, span: Span): Templates | undefined {
  if (directory === undefined) return undefined;
  if (span.role !== 'register' || span.nodes > 1)
    throw new UsageError('--accept-deployments is for engines on one node');
  return asUsage(() => {
    try {
      return readTemplates(directory);
    } catch (error) {
      throw new Error(`--accept-deployments: ${error instanceof Error ? error.message : String(error)}`);
    }
  });
}

function delegateKey(path: string | undefined): DelegateKey | undefined {
  return path === undefined ? undefined : asUsage(() => DelegateKey.read(path));
}

/** @throws UsageError */
function evidenceHelper(file: string | undefined, kinds: string | undefined): EvidenceHelper | undefined {
  if (file === undefined && kinds === undefined) return undefined;
  if (file === undefined || kinds === undefined)
    throw new UsageError('--evidence-command and --evidence-kinds belong together');
  const listed = kinds.split(',').map((kind) => kind.trim());
  if (listed.length > EVIDENCE_KINDS_MAX || !listed.every((kind) => EVIDENCE_KIND.test(kind)))
    throw new UsageError(`--evidence-kinds: up to ${EVIDENCE_KINDS_MAX} words like tdx,nvidia`);
  asUsage(() => accessSync(file, constants.X_OK));
  return new EvidenceHelper(file, listed);
}

function releaseDir(directory: string | undefined): string | undefined {
  if (directory === undefined) return undefined;
  for (const file of [MANIFEST_FILE, SIGNATURE_FILE]) {
    if (!existsSync(join(directory, file))) throw new UsageError(`release-dir: there is no ${file} in ${directory}`);
    asUsage(() => accessSync(join(directory, file), constants.R_OK));
  }
  return directory;
}

function isOn(name: string, text: string): boolean {
  if (/^(1|true|yes|on)$/i.test(text)) return true;
  if (/^(0|false|no|off)$/i.test(text)) return false;
  throw new UsageError(`${name}: "${text}" is neither true nor false`);
}

function count(name: string, text: string | undefined, least: number): number | undefined {
  if (text === undefined) return undefined;
  const value = /^\d{1,6}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= least) return value;
  throw new UsageError(`${name}: "${text}" is not a number of at least ${least}`);
}

function checkCommand(command: string[] | undefined): void {
  const [file, ...rest] = command ?? [];
  if (file === undefined) return;
  if (file.trim() === '') throw new UsageError('the command is empty: is a variable in the script not set?');
  if (/\s/.test(file.trim()) && rest.length > 0) {
    throw new UsageError(
      `"${file}" is one argument with spaces followed by others: give the command as separate words, ` +
        'or as one quoted argument with all flags of otela-agent before it',
    );
  }
}

function gateways(texts: readonly string[], env: Env, warnings: string[]): URL[] {
  if (texts.length === 0) {
    throw new UsageError('no gateway: say --gateway https://… or set OTELA_GATEWAY');
  }
  if (texts.length > GATEWAYS_MAX) throw new UsageError(`at most ${GATEWAYS_MAX} gateways`);
  const urls = new Map<string, URL>();
  for (const text of texts) {
    const url = gatewayUrl(text);
    asUsage(() => proxyFor(url, env));
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
  if (url.protocol.startsWith('ws')) url.protocol = url.protocol === 'ws:' ? 'http:' : 'https:';
  return url;
}

function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127\./.test(hostname);
}

function token(settings: Settings, env: Env, warnings: string[]): string {
  const direct = settings.values.get('token');
  const file = settings.values.get('token-file');
  if (direct?.source === '--token')
    warnings.push('--token shows in ps to everybody on this node: use --token-file or OTELA_TOKEN');
  // The nearer source wins, as everywhere: a flag that names a file stands above a variable that holds a token.
  const useFile = file && (!direct || rank(file.source) > rank(direct.source));
  if (!useFile && !direct) throw new UsageError('no token: say --token-file FILE or set OTELA_TOKEN');
  let value = direct?.values.at(-1) ?? '';
  if (useFile) {
    const read = readSecretFile('--token-file', file.values.at(-1) ?? '', env);
    warnings.push(...read.warnings);
    value = read.secret;
  }
  return oneWord('the token', value);
}

/** It travels in a header: a line break in it would end the header, and what is no ASCII arrives as something else, or not. */
function oneWord(what: string, text: string): string {
  const word = text.trim();
  if (/^[\x21-\x7e]{1,4096}$/.test(word)) return word;
  throw new UsageError(`${what} is not one word of printable ASCII characters`);
}

function engine(
  settings: Settings,
  command: string[] | undefined,
  env: Env,
  warnings: string[],
): EngineTarget | undefined {
  const url = settings.values.get('engine-url');
  const port = settings.values.get('engine-port');
  const bootstrap = settings.values.get('prefill-bootstrap-port');
  const portNumber = (setting: typeof port): number | undefined => {
    const text = setting?.values.at(-1);
    if (text === undefined) return undefined;
    if (/^\d{1,5}$/.test(text) && Number(text) >= 1 && Number(text) <= 65_535) return Number(text);
    throw new UsageError(`${setting?.source}: "${text}" is not a port`);
  };
  const direct = settings.values.get('OTELA_ENGINE_KEY');
  const file = settings.values.get('engine-key-file');
  let key = direct?.values.at(-1);
  if (file && (!direct || rank(file.source) >= rank(direct.source))) {
    const read = readSecretFile('--engine-key-file', file.values.at(-1) ?? '', env);
    warnings.push(...read.warnings);
    key = read.secret;
  }
  return asUsage(() =>
    engineTarget({
      url: url?.values.at(-1),
      port: portNumber(port),
      prefillUrl: settings.values.get('prefill-url')?.values.at(-1),
      bootstrapPort: portNumber(bootstrap),
      key: key === undefined ? undefined : oneWord('the engine’s key', key),
      command: command && command.length > 0 ? command : undefined,
    }),
  );
}

function id(name: string, value: string | undefined): string | undefined {
  if (value === undefined || ID_PATTERN.test(value)) return value;
  throw new UsageError(`${name}: "${value}" must be lower-case letters, digits and dashes, at most 63`);
}

/** `+2h` is two hours from now. Throws UsageError. */
function endsAt(value: string | undefined): Date | undefined {
  if (value === undefined) return undefined;
  if (value.startsWith('+')) return new Date(Date.now() + parseDuration(value.slice(1), 'ends-at'));
  const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(value)
    ? Date.parse(value)
    : Number.NaN;
  if (Number.isNaN(time)) throw new UsageError(`ends-at: "${value}" is no time such as 2027-01-31T18:00:00Z or +2h`);
  return new Date(time);
}

function tier(value: string | undefined, env: Env): 'stable' | 'volatile' {
  if (value === undefined) return batchJob(env) === undefined ? 'stable' : 'volatile';
  if (value === 'stable' || value === 'volatile') return value;
  throw new UsageError(`tier: "${value}" is neither stable nor volatile`);
}

function labels(texts: readonly string[], max: number): Record<string, string> {
  const read: Record<string, string> = Object.create(null);
  for (const text of texts) {
    const at = text.indexOf('=');
    const [key, value] = [text.slice(0, at), text.slice(at + 1)];
    if (key.startsWith(RESERVED_PREFIX))
      throw new UsageError(`--label: labels that begin with ${RESERVED_PREFIX} are the agent's own`);
    if (at < 1 || !/^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/.test(key)) {
      throw new UsageError(`--label: "${text}" is not KEY=VALUE (letters, digits, . _ / - in the key, at most 63)`);
    }
    if (value.length > 255) throw new UsageError(`--label ${key}: longer than 255 characters`);
    read[key] = value;
  }
  if (Object.keys(read).length > max) throw new UsageError(`at most ${max} labels`);
  if (Buffer.byteLength(JSON.stringify(read)) > LABELS_MAX_BYTES)
    throw new UsageError('the labels are longer than 1 KiB together');
  return { ...read };
}

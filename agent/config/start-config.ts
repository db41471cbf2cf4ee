/** The settings of `otela-agent start`, checked and typed. */

import { accessSync, constants, existsSync } from 'node:fs';
import { join } from 'node:path';
import { UsageError } from '../../shared/command-line/index.ts';
import { ID_PATTERN } from '../../shared/lattice/node.ts';
import { MANIFEST_FILE, SIGNATURE_FILE } from '../../shared/release/release.ts';
import { EVIDENCE_KIND, EVIDENCE_KINDS_MAX } from '../../shared/seal/evidence.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { readTemplates, type Templates } from '../deploy/templates.ts';
import type { EngineTarget } from '../engine/address.ts';
import { shellWrapped } from '../engine/command.ts';
import { type ModelFact, parseFact } from '../engine/facts.ts';
import { type FatalPatterns, fatalPatterns } from '../engine/fatal.ts';
import { type EngineLimits, MAX_WAITING } from '../engine/saturation.ts';
import { type EngineSpan, engineSpan } from '../engine/span.ts';
import { detectBatchJob } from '../host/jobs/detect.ts';
import type { IngressConfig } from '../ingress/service.ts';
import { DelegateKey } from '../seal/delegate-key.ts';
import { EvidenceHelper } from '../seal/evidence.ts';
import type { NodeWeightsConfig } from '../weights/config.ts';
import { parseDuration } from './duration.ts';
import { checkCommand, engineConfig } from './engine-config.ts';
import { type FunctionsConfig, functionsConfig } from './functions-config.ts';
import { gatewaysConfig, joinToken } from './gateways-config.ts';
import { ingressConfig } from './ingress-config.ts';
import { labelsConfig } from './labels-config.ts';
import { type MeshConfig, meshConfig } from './mesh-config.ts';
import { type MetricsConfig, metricsConfig } from './metrics-config.ts';
import { resolveConflicts } from './precedence.ts';
import type { Env, SettingValues } from './setting-sources.ts';
import type { SettingName } from './settings.ts';
import { toUsageError } from './to-usage-error.ts';
import { weightsConfig } from './weights-config.ts';

export interface StartConfig {
  gateways: URL[];
  token: string;
  cluster: string | undefined;
  region: string | undefined;
  tier: 'stable' | 'volatile';
  facts: ModelFact[];
  labels: Record<string, string>;
  /** Ready for exec: a single argument with spaces has become `sh -c`. */
  command: string[] | undefined;
  /** Undefined: joins idle. */
  engine: EngineTarget | undefined;
  /** Templates that the network may deploy here; undefined: none. */
  templates: Templates | undefined;
  /** Limits of concurrent requests at the engine. */
  limits: EngineLimits;
  /** Undefined: no user's function runs here. */
  functions: FunctionsConfig | undefined;
  /** Undefined: this node stores no weights. */
  weights: NodeWeightsConfig | undefined;
  span: EngineSpan;
  /** Patterns of the engine's output lines that end this node. */
  fatal: FatalPatterns;
  /** How long the engine may be silent before it is asked for a token, and how long it may take for it. */
  probe: { afterMs: number; timeoutMs: number };
  mesh: MeshConfig;
  ingress: IngressConfig;
  /** Undefined: no port. */
  metrics: MetricsConfig | undefined;
  /** Undefined: chosen from the job's length. 0: never. */
  drainBeforeMs: number | undefined;
  drainTimeoutMs: number | undefined;
  /** True if gateways may read the output of engine and agent. */
  remoteLogs: boolean;
  logDirectory: string | undefined;
  /** The node's end that the operator set; undefined: the end of its batch job. */
  endsAt: Date | undefined;
  /** Key that vouches for this node's encryption keys; undefined: nothing vouches for them. */
  delegate: DelegateKey | undefined;
  evidence: EvidenceHelper | undefined;
  /** Directory of the manifest and signature of this program's release; undefined: the program's directory. */
  releaseDir: string | undefined;
  warnings: string[];
}

/** Longer than most prefills take. */
const PROBE_AFTER_MS = 120_000;
/**
 * With PROBE_AFTER_MS ten minutes: less than the first-byte timeout of gateways, and more than prefills of a million
 * tokens take.
 */
const PROBE_TIMEOUT_MS = 480_000;

/** Throws UsageError. */
export function startConfig(given: SettingValues, command: string[] | undefined, env: Env): StartConfig {
  const settings = resolveConflicts(given, command);
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
  // The other ranks of an engine also get their weights from neighbors.
  const joins = registers || weights !== undefined;
  return {
    gateways: joins ? gatewaysConfig(many('gateway'), env, warnings) : [],
    token: joins ? joinToken(settings, env, warnings) : '',
    cluster: id('cluster', one('cluster')),
    region: id('region', one('region')),
    tier: tier(one('tier'), env),
    facts: many('fact').map((text) => toUsageError(() => parseFact(text))),
    labels: labelsConfig(many('label'), one('accept-deployments') !== undefined),
    command: command && command.length > 0 ? shellWrapped(command) : undefined,
    engine: registers ? engineConfig(settings, command, env, warnings) : undefined,
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
    fatal: toUsageError(() => fatalPatterns(many('fatal-pattern'))),
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

function sourceOf(settings: SettingValues, name: SettingName): string {
  return settings.values.get(name)?.source ?? `--${name}`;
}

function templates(directory: string | undefined, span: EngineSpan): Templates | undefined {
  if (directory === undefined) return undefined;
  if (span.role !== 'register' || span.nodes > 1)
    throw new UsageError('--accept-deployments is for engines on one node');
  return toUsageError(() => {
    try {
      return readTemplates(directory);
    } catch (error) {
      throw new Error(`--accept-deployments: ${errorText(error)}`);
    }
  });
}

function delegateKey(path: string | undefined): DelegateKey | undefined {
  return path === undefined ? undefined : toUsageError(() => DelegateKey.read(path));
}

/** @throws UsageError */
function evidenceHelper(file: string | undefined, kinds: string | undefined): EvidenceHelper | undefined {
  if (file === undefined && kinds === undefined) return undefined;
  if (file === undefined || kinds === undefined)
    throw new UsageError('--evidence-command and --evidence-kinds belong together');
  const listed = kinds.split(',').map((kind) => kind.trim());
  if (listed.length > EVIDENCE_KINDS_MAX || !listed.every((kind) => EVIDENCE_KIND.test(kind)))
    throw new UsageError(`--evidence-kinds: up to ${EVIDENCE_KINDS_MAX} words like tdx,nvidia`);
  toUsageError(() => accessSync(file, constants.X_OK));
  return new EvidenceHelper(file, listed);
}

function releaseDir(directory: string | undefined): string | undefined {
  if (directory === undefined) return undefined;
  for (const file of [MANIFEST_FILE, SIGNATURE_FILE]) {
    if (!existsSync(join(directory, file))) throw new UsageError(`release-dir: there is no ${file} in ${directory}`);
    toUsageError(() => accessSync(join(directory, file), constants.R_OK));
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
  if (value === undefined) return detectBatchJob(env) === undefined ? 'stable' : 'volatile';
  if (value === 'stable' || value === 'volatile') return value;
  throw new UsageError(`tier: "${value}" is neither stable nor volatile`);
}

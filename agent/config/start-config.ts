/** The settings of `otela-agent start`, checked and typed. */

import { UsageError } from '../../shared/command-line/index.ts';
import type { Templates } from '../deploy/deployment-templates.ts';
import type { EngineTarget } from '../engine/engine-address.ts';
import { shellWrapped } from '../engine/engine-command.ts';
import { type EngineSpan, engineSpan } from '../engine/multi-machine-engine.ts';
import type { EngineLimits } from '../engine/saturation.ts';
import type { IngressConfig } from '../ingress/request-service.ts';
import type { NodeWeightsConfig } from '../weights/weights-config.ts';
import { DEPLOYMENT_SETTINGS, templatesConfig } from './deployments-config.ts';
import { ENDING_SETTINGS } from './ending-config.ts';
import { ADAPTER_SETTINGS, checkCommand, engineConfig, LIMIT_SETTINGS } from './engine-config.ts';
import { type FunctionsConfig, functionsConfig } from './functions-config.ts';
import { gatewaysConfig, joinToken } from './gateways-config.ts';
import { ingressConfig } from './ingress-config.ts';
import { type MeshConfig, meshConfig } from './mesh-config.ts';
import { type MetricsConfig, metricsConfig } from './metrics-config.ts';
import { checkLabelsOfDeployments, NODE_SETTINGS } from './node-config.ts';
import { RELEASE_SETTINGS } from './release-config.ts';
import { type SealConfig, sealConfig } from './seal-config.ts';
import { type Env, type ParsedSettings, SettingReader } from './setting.ts';
import { resolveConflicts } from './setting-conflicts.ts';
import type { SettingValues } from './setting-sources.ts';
import { SPAN_SETTINGS, SUPERVISION_SETTINGS } from './supervision-config.ts';
import { WEIGHTS_SETTINGS, weightsConfig } from './weights-config.ts';

const PLAIN_SETTINGS = {
  ...NODE_SETTINGS,
  ...ADAPTER_SETTINGS,
  ...SUPERVISION_SETTINGS,
  ...ENDING_SETTINGS,
  ...RELEASE_SETTINGS,
};

export interface StartConfig extends ParsedSettings<typeof PLAIN_SETTINGS>, SealConfig {
  gateways: URL[];
  token: string;
  /** The engine's command, ready for exec: a single argument with spaces was replaced by `sh -c`. */
  command: string[] | undefined;
  /** Undefined: the agent joins without an engine. */
  engine: EngineTarget | undefined;
  /** Templates of deployments that operators of gateways may start here; undefined if none may. */
  templates: Templates | undefined;
  /** Limits of concurrent requests at the engine. */
  limits: EngineLimits;
  /** Undefined if no function may run here. */
  functions: FunctionsConfig | undefined;
  /** Undefined: this node stores no weights. */
  weights: NodeWeightsConfig | undefined;
  span: EngineSpan;
  mesh: MeshConfig;
  ingress: IngressConfig;
  /** Undefined: `/metrics` is not served. */
  metrics: MetricsConfig | undefined;
  warnings: string[];
}

/** @throws UsageError */
export function startConfig(given: SettingValues, command: string[] | undefined, env: Env): StartConfig {
  const warnings = [...given.warnings];
  const reader = new SettingReader(resolveConflicts(given.values, command), env, warnings);
  checkCommand(command);
  const span = engineSpan(command, env, reader.read(SPAN_SETTINGS).spanNodes);
  if (reader.has(WEIGHTS_SETTINGS.environment) && reader.has(DEPLOYMENT_SETTINGS.templates))
    throw new UsageError(
      '--environment does not apply to programs that --accept-deployments starts: remove one of the two',
    );
  const weights = weightsConfig(reader);
  const registers = span.role === 'register';
  // Agents of the other ranks need a gateway and a token only if they get their weights from neighbors.
  const joins = registers || weights !== undefined;
  const config: StartConfig = {
    gateways: joins ? gatewaysConfig(reader) : [],
    token: joins ? joinToken(reader) : '',
    ...reader.read(PLAIN_SETTINGS),
    command: command && command.length > 0 ? shellWrapped(command) : undefined,
    engine: registers ? engineConfig(reader, command) : undefined,
    templates: templatesConfig(reader, span),
    limits: reader.read(LIMIT_SETTINGS),
    functions: functionsConfig(reader),
    weights,
    span,
    mesh: meshConfig(reader),
    metrics: metricsConfig(reader),
    ingress: ingressConfig(reader),
    ...sealConfig(reader),
    warnings,
  };
  if (config.templates !== undefined) checkLabelsOfDeployments(config.labels);
  const copying = config.templates?.copying;
  if (copying !== undefined && weights === undefined)
    throw new UsageError(`--accept-deployments: the template ${copying} copies weights: add --weights-dir`);
  return config;
}

/** The engine's command, address, key and limits. */
import { UsageError } from '../../shared/command-line/index.ts';
import { TRANSLATED_APIS, type TranslatedApi } from '../../shared/openai/translation/translation.ts';
import { BOOTSTRAP_PORT, type EngineTarget, parseEngineTarget } from '../engine/engine-address.ts';
import { MAX_WAITING } from '../engine/saturation.ts';
import { readSecretFile, requireHeaderWord } from './secret-file.ts';
import {
  listSetting,
  type ParseContext,
  plainText,
  type SettingReader,
  sourcedText,
  sourcePrecedence,
  valueSetting,
} from './setting.ts';
import { toUsageError } from './to-usage-error.ts';

export const ENGINE_SETTINGS = {
  enginePort: valueSetting({
    flag: 'engine-port',
    env: 'OTELA_ENGINE_PORT',
    value: 'PORT',
    help: 'port of the engine on this machine',
    otherwise: 'the port in the command, or the default of a known engine (vLLM 8000, llama.cpp 8080, …)',
    parse: parsePort,
  }),
  engineUrl: valueSetting({
    flag: 'engine-url',
    env: 'OTELA_ENGINE_URL',
    value: 'URL',
    help: 'URL of an engine that already runs, with its path prefix if it has one',
    parse: plainText,
  }),
  engineModels: listSetting({
    flag: 'engine-model',
    env: 'OTELA_ENGINE_MODEL',
    value: 'NAME',
    help: 'model of an engine without /v1/models; repeat, or separate with commas',
    commas: true,
    parse: (texts) => texts,
  }),
  engineHealthPath: valueSetting({
    flag: 'engine-health-path',
    env: 'OTELA_ENGINE_HEALTH_PATH',
    value: 'PATH',
    help: 'path at which the engine answers with 503 while it loads',
    otherwise: '/health',
    parse: plainText,
  }),
  engineMetricsPath: valueSetting({
    flag: 'engine-metrics-path',
    env: 'OTELA_ENGINE_METRICS_PATH',
    value: 'PATH',
    help: "path of the engine's metrics in Prometheus' format",
    otherwise: '/metrics',
    parse: plainText,
  }),
  engineKeyFile: valueSetting({
    flag: 'engine-key-file',
    env: 'OTELA_ENGINE_KEY_FILE',
    value: 'FILE',
    help: "file with the engine's API key",
    parse: sourcedText,
  }),
  prefillUrls: listSetting({
    flag: 'prefill-url',
    env: 'OTELA_PREFILL_URL',
    value: 'URL',
    help: 'URL of a prefill engine for this engine (vLLM, SGLang); repeat, or separate with commas',
    commas: true,
    parse: (texts) => texts,
  }),
  prefillBootstrapPort: valueSetting({
    flag: 'prefill-bootstrap-port',
    env: 'OTELA_PREFILL_BOOTSTRAP_PORT',
    value: 'PORT',
    help: "--disaggregation-bootstrap-port of SGLang's prefill engines",
    default: String(BOOTSTRAP_PORT),
    parse: parsePort,
  }),
  translate: listSetting({
    flag: 'translate',
    env: 'OTELA_TRANSLATE',
    value: 'API',
    help: 'APIs that the engine lacks and the agent answers from its /v1/chat/completions: messages, responses; repeat, or separate with commas',
    commas: true,
    parse: translatedApis,
  }),
  engineKey: valueSetting({
    flag: '',
    env: 'OTELA_ENGINE_KEY',
    value: 'KEY',
    help: "the engine's API key",
    secret: true,
    parse: sourcedText,
  }),
};

export const ADAPTER_SETTINGS = {
  loraDir: valueSetting({
    flag: 'lora-dir',
    env: 'OTELA_LORA_DIR',
    value: 'DIR',
    help: 'LoRA adapters that the engine may load on request: DIR/NAME or DIR/ORG/NAME, each with an adapter_config.json (vLLM, SGLang)',
    parse: plainText,
  }),
};

export const LIMIT_SETTINGS = {
  maxRunning: valueSetting({
    flag: 'max-running',
    env: 'OTELA_MAX_RUNNING',
    value: 'N',
    help: 'maximum requests at the engine, running or waiting there; more go to other nodes or wait at the gateway',
    otherwise: 'no limit',
    parse: (text) => atLeast(1, 'max-running', text),
  }),
  maxWaiting: valueSetting({
    flag: 'max-waiting',
    env: 'OTELA_MAX_WAITING',
    value: 'N',
    help: 'maximum requests that wait in the engine, according to its /metrics; none: no limit',
    default: String(MAX_WAITING),
    parse: (text) => (text === 'none' ? undefined : atLeast(0, 'max-waiting', text)),
  }),
};

/** @throws UsageError */
export function checkCommand(command: string[] | undefined): void {
  const [file, ...rest] = command ?? [];
  if (file === undefined) return;
  if (file.trim() === '') throw new UsageError('the command is empty: is a variable in the script not set?');
  if (/\s/.test(file.trim()) && rest.length > 0) {
    throw new UsageError(
      `"${file}" is one argument with spaces followed by others: write the command as separate words, ` +
        'or as one quoted argument with all flags of otela-agent before it',
    );
  }
}

/** The engine's address. Undefined if there is no engine. @throws UsageError */
export function engineConfig(reader: SettingReader, command: string[] | undefined): EngineTarget | undefined {
  const given = reader.read(ENGINE_SETTINGS);
  const { engineKey: direct, engineKeyFile: keyFile } = given;
  let key = direct?.text;
  if (keyFile && (!direct || sourcePrecedence(keyFile.source) >= sourcePrecedence(direct.source)))
    key = readSecretFile('--engine-key-file', keyFile.text, reader);
  return toUsageError(() =>
    parseEngineTarget({
      url: given.engineUrl,
      port: given.enginePort,
      prefillUrls: given.prefillUrls,
      bootstrapPort: given.prefillBootstrapPort,
      models: given.engineModels,
      healthPath: given.engineHealthPath,
      metricsPath: given.engineMetricsPath,
      translates: given.translate,
      key: key === undefined ? undefined : requireHeaderWord('the engine’s key', key),
      command: command && command.length > 0 ? command : undefined,
    }),
  );
}

function translatedApis(texts: readonly string[], { source }: ParseContext): TranslatedApi[] {
  return texts.map((text) => {
    const api = TRANSLATED_APIS.find((name) => name === text);
    if (api === undefined) throw new UsageError(`${source}: "${text}" is not one of ${TRANSLATED_APIS.join(', ')}`);
    return api;
  });
}

function parsePort(text: string, { source }: ParseContext): number {
  if (/^\d{1,5}$/.test(text) && Number(text) >= 1 && Number(text) <= 65_535) return Number(text);
  throw new UsageError(`${source}: "${text}" is not a port`);
}

function atLeast(least: number, name: string, text: string): number {
  const value = /^\d{1,6}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= least) return value;
  throw new UsageError(`${name}: "${text}" is not a number of at least ${least}`);
}

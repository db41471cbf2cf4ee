/** The engine's command, address and key. */
import { UsageError } from '../../shared/command-line/index.ts';
import { type EngineTarget, parseEngineTarget } from '../engine/address.ts';
import { sourcePrecedence } from './precedence.ts';
import { type Env, readSecretFile, requireHeaderWord, type SettingValues } from './setting-sources.ts';
import { toUsageError } from './to-usage-error.ts';

/** @throws UsageError */
export function checkCommand(command: string[] | undefined): void {
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

/** Undefined: there is no engine. @throws UsageError */
export function engineConfig(
  settings: SettingValues,
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
  if (file && (!direct || sourcePrecedence(file.source) >= sourcePrecedence(direct.source))) {
    const read = readSecretFile('--engine-key-file', file.values.at(-1) ?? '', env);
    warnings.push(...read.warnings);
    key = read.secret;
  }
  return toUsageError(() =>
    parseEngineTarget({
      url: url?.values.at(-1),
      port: portNumber(port),
      prefillUrl: settings.values.get('prefill-url')?.values.at(-1),
      bootstrapPort: portNumber(bootstrap),
      key: key === undefined ? undefined : requireHeaderWord('the engine’s key', key),
      command: command && command.length > 0 ? command : undefined,
    }),
  );
}

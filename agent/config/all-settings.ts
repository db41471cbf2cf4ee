/** All settings of `otela-agent start`, each with its flag, environment variable and line in the configuration file. */
import type { AcceptedValues, Flag, Flags } from '../../shared/command-line/index.ts';
import { DEPLOYMENT_SETTINGS } from './deployments-config.ts';
import { ENDING_SETTINGS } from './ending-config.ts';
import { ADAPTER_SETTINGS, ENGINE_SETTINGS, LIMIT_SETTINGS } from './engine-config.ts';
import { FUNCTION_SETTINGS } from './functions-config.ts';
import { GATEWAY_SETTINGS, TOKEN_SETTINGS } from './gateways-config.ts';
import { INGRESS_ACCESS, INGRESS_ADDRESS } from './ingress-config.ts';
import { MESH_SETTINGS } from './mesh-config.ts';
import { METRICS_SETTINGS } from './metrics-config.ts';
import { NODE_SETTINGS } from './node-config.ts';
import { RELEASE_SETTINGS } from './release-config.ts';
import { SEAL_SETTINGS } from './seal-config.ts';
import { plainText, type Setting, type SettingTable, valueSetting } from './setting.ts';
import { SPAN_SETTINGS, SUPERVISION_SETTINGS } from './supervision-config.ts';
import { WEIGHTS_SETTINGS } from './weights-config.ts';

export const CONFIG_FILE: Setting<string | undefined> = valueSetting({
  flag: 'config',
  env: 'OTELA_CONFIG',
  value: 'FILE',
  help: 'configuration file: one `flag = value` per line',
  otherwise: '~/.config/otela-agent/config',
  parse: plainText,
});

/** Tables of settings, in the order of the help. */
const TABLES: readonly SettingTable[] = [
  GATEWAY_SETTINGS,
  TOKEN_SETTINGS,
  NODE_SETTINGS,
  ENGINE_SETTINGS,
  ADAPTER_SETTINGS,
  SEAL_SETTINGS,
  DEPLOYMENT_SETTINGS,
  LIMIT_SETTINGS,
  FUNCTION_SETTINGS,
  SPAN_SETTINGS,
  SUPERVISION_SETTINGS,
  ENDING_SETTINGS,
  MESH_SETTINGS,
  INGRESS_ADDRESS,
  METRICS_SETTINGS,
  INGRESS_ACCESS,
  WEIGHTS_SETTINGS,
  RELEASE_SETTINGS,
];

export const SETTINGS: readonly Setting<unknown>[] = [...TABLES.flatMap((table) => Object.values(table)), CONFIG_FILE];

/** The engine's command line follows `--` or this flag. */
export const COMMAND_FLAG = {
  process: { value: 'COMMAND…', rest: true, takes: 'command', help: 'same as -- COMMAND…' },
} as const satisfies Flags;

/** The flags of `start`, `doctor` and `config`. */
export const START_FLAGS: Flags = {
  ...Object.fromEntries(SETTINGS.filter(({ flag }) => flag !== '').map((setting) => [setting.flag, flagOf(setting)])),
  ...COMMAND_FLAG,
};

function flagOf({ kind, value, help, otherwise }: Setting<unknown>): Flag {
  return {
    help,
    ...(otherwise === undefined ? {} : { otherwise }),
    ...(kind === 'switch' ? {} : { value, takes: completionFor(value) }),
    ...(kind === 'repeat' ? { repeat: true } : {}),
  };
}

/** What a shell completes for a placeholder: files, directories, or words. */
function completionFor(placeholder: string): AcceptedValues {
  if (placeholder === 'FILE') return 'file';
  if (placeholder === 'DIR') return 'directory';
  return /^[a-z]+(\|[a-z]+)+$/.test(placeholder) ? placeholder.split('|') : 'word';
}

/** When the node ends, how it drains, and where its last output goes. */
import { UsageError } from '../../shared/command-line/index.ts';
import { parseDuration } from './duration.ts';
import { plainText, type Setting, sourcedDuration, switchSetting, valueSetting } from './setting.ts';

const NO_REMOTE_LOGS = switchSetting({
  flag: 'no-remote-logs',
  env: 'OTELA_NO_REMOTE_LOGS',
  help: 'never send the output of the engine or the agent to gateways',
});

export const ENDING_SETTINGS = {
  /** When the node ends, if the operator set it; undefined: with its batch job. */
  endsAt: valueSetting({
    flag: 'ends-at',
    env: 'OTELA_ENDS_AT',
    value: 'TIME',
    help: 'when this node ends (RFC 3339, or +DURATION from now); overrides the end time from the batch system',
    otherwise: "the job's end time from the batch system",
    parse: parseEnd,
  }),
  /** How long before its end the node drains, in milliseconds. Undefined: chosen from the job's length. 0: never. */
  drainBeforeMs: valueSetting({
    flag: 'drain-before',
    env: 'OTELA_DRAIN_BEFORE',
    value: 'DURATION',
    help: "start to drain this long before the job's end; 0: never",
    otherwise: '60s, at most a tenth of the time left',
    parse: sourcedDuration,
  }),
  /** True if gateways may read the output of the engine and of the agent. */
  remoteLogs: { ...NO_REMOTE_LOGS, parse: (...given) => !NO_REMOTE_LOGS.parse(...given) } satisfies Setting<boolean>,
  logDirectory: valueSetting({
    flag: 'log-dir',
    env: 'OTELA_LOG_DIR',
    value: 'DIR',
    help: 'directory for the last output of the engine and the agent when they end; the newest 100 are kept',
    otherwise: 'not saved',
    parse: plainText,
  }),
  drainTimeoutMs: valueSetting({
    flag: 'drain-timeout',
    env: 'OTELA_DRAIN_TIMEOUT',
    value: 'DURATION',
    help: 'maximum wait for running requests while draining',
    otherwise: 'see "Ending"',
    parse: sourcedDuration,
  }),
};

/** Parses a time, or a duration from now such as `+2h`. @throws UsageError */
function parseEnd(text: string): Date {
  if (text.startsWith('+')) return new Date(Date.now() + parseDuration(text.slice(1), 'ends-at'));
  const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(text)
    ? Date.parse(text)
    : Number.NaN;
  if (Number.isNaN(time)) throw new UsageError(`ends-at: "${text}" is not a time such as 2027-01-31T18:00:00Z or +2h`);
  return new Date(time);
}

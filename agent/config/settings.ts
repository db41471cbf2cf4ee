/** Every setting of `otela-agent start`: its flag, its variable, its line in the configuration file. */
import type { AcceptedValues, Flag, Flags } from '../../shared/command-line/index.ts';

interface Setting {
  /**
   * `--name`, and the same name in the configuration file. Empty: there is no flag, so that the value cannot show in
   * `ps`.
   */
  flag: string;
  env: string;
  /** A switch takes no value; `repeat` collects every value. */
  kind: 'value' | 'repeat' | 'switch';
  /** Placeholder of the value in the help. */
  value: string;
  help: string;
  /** Never shown, not even by `otela-agent config`. */
  secret?: true;
  /** The default, as text. */
  otherwise?: string;
}

export const SETTINGS = [
  {
    flag: 'gateway',
    env: 'OTELA_GATEWAY',
    kind: 'repeat',
    value: 'URL',
    help: 'URL of a gateway to connect to; repeat, or separate with commas',
  },
  {
    flag: 'token-file',
    env: 'OTELA_TOKEN_FILE',
    kind: 'value',
    value: 'FILE',
    help: 'file with the join token (chmod 600)',
  },
  {
    flag: 'token',
    env: 'OTELA_TOKEN',
    kind: 'value',
    value: 'TOKEN',
    help: 'join token; it is visible in ps, so prefer --token-file',
    secret: true,
  },
  {
    flag: 'cluster',
    env: 'OTELA_CLUSTER',
    kind: 'value',
    value: 'NAME',
    help: 'name of this cluster',
    otherwise: 'from the token',
  },
  {
    flag: 'region',
    env: 'OTELA_REGION',
    kind: 'value',
    value: 'NAME',
    help: 'region of this machine, for example eu-central',
  },
  {
    flag: 'tier',
    env: 'OTELA_TIER',
    kind: 'value',
    value: 'stable|volatile',
    help: 'whether the node stays (stable) or may end at any time (volatile)',
    otherwise: 'volatile in a batch job, otherwise stable',
  },
  {
    flag: 'fact',
    env: 'OTELA_FACT',
    kind: 'repeat',
    value: '[MODEL:]KEY=VALUE',
    help: 'a fact that the engine does not report: context, quantization, engine, revision',
  },
  {
    flag: 'label',
    env: 'OTELA_LABEL',
    kind: 'repeat',
    value: 'KEY=VALUE',
    help: 'a label to show in the registry; repeat',
  },
  {
    flag: 'engine-port',
    env: 'OTELA_ENGINE_PORT',
    kind: 'value',
    value: 'PORT',
    help: 'port of the engine on this machine',
    otherwise: '--port in the command; otherwise 8000 for vLLM, 30000 for SGLang',
  },
  {
    flag: 'engine-url',
    env: 'OTELA_ENGINE_URL',
    kind: 'value',
    value: 'URL',
    help: 'URL of an engine that already runs, with its path prefix if it has one',
  },
  {
    flag: 'engine-key-file',
    env: 'OTELA_ENGINE_KEY_FILE',
    kind: 'value',
    value: 'FILE',
    help: "file with the engine's API key",
  },
  {
    flag: 'prefill-url',
    env: 'OTELA_PREFILL_URL',
    kind: 'value',
    value: 'URL',
    help: 'URL of the prefill engine for this engine; both serve as one replica (vLLM, SGLang)',
  },
  {
    flag: 'prefill-bootstrap-port',
    env: 'OTELA_PREFILL_BOOTSTRAP_PORT',
    kind: 'value',
    value: 'PORT',
    help: "--disaggregation-bootstrap-port of SGLang's prefill engine",
    otherwise: '8998',
  },
  { flag: '', env: 'OTELA_ENGINE_KEY', kind: 'value', value: 'KEY', help: "the engine's API key", secret: true },
  {
    flag: 'delegate-file',
    env: 'OTELA_DELEGATE_FILE',
    kind: 'value',
    value: 'FILE',
    help: 'delegate key from otela-agent vouch (chmod 600); clients that pin the provider can then encrypt requests to this node',
  },
  {
    flag: 'evidence-command',
    env: 'OTELA_EVIDENCE_COMMAND',
    kind: 'value',
    value: 'FILE',
    help: 'your program that prints evidence about a confidential VM, for clients that verify it (docs/sealed.md)',
  },
  {
    flag: 'evidence-kinds',
    env: 'OTELA_EVIDENCE_KINDS',
    kind: 'value',
    value: 'KINDS',
    help: 'kinds of evidence that --evidence-command prints, separated by commas: tdx, snp, nvidia',
  },
  {
    flag: 'accept-deployments',
    env: 'OTELA_ACCEPT_DEPLOYMENTS',
    kind: 'value',
    value: 'DIR',
    help: 'start without an engine and run the deployments that the gateway orders; only the commands in DIR/NAME.json are allowed',
  },
  {
    flag: 'max-running',
    env: 'OTELA_MAX_RUNNING',
    kind: 'value',
    value: 'N',
    help: 'maximum requests that run in the engine at a time; more requests go to other nodes or wait at the gateway',
    otherwise: 'no limit',
  },
  {
    flag: 'max-waiting',
    env: 'OTELA_MAX_WAITING',
    kind: 'value',
    value: 'N',
    help: 'maximum requests that wait in the engine, according to its /metrics; none: no limit',
    otherwise: '8',
  },
  {
    flag: 'allow-functions',
    env: 'OTELA_ALLOW_FUNCTIONS',
    kind: 'repeat',
    value: 'PROJECT',
    help: 'projects that may run Python functions here, as lines of batches with all rights of this user; all: every project',
    otherwise: 'none',
  },
  {
    flag: 'functions-python',
    env: 'OTELA_FUNCTIONS_PYTHON',
    kind: 'value',
    value: 'FILE',
    help: 'Python interpreter for functions, for example VENV/bin/python',
    otherwise: 'python3',
  },
  {
    flag: 'functions-loaded',
    env: 'OTELA_FUNCTIONS_LOADED',
    kind: 'value',
    value: 'N',
    help: 'maximum functions that are loaded at a time',
    otherwise: '1',
  },
  {
    flag: 'functions-memory',
    env: 'OTELA_FUNCTIONS_MEMORY',
    kind: 'value',
    value: 'MIB',
    help: 'maximum resident memory of one function and its child processes',
    otherwise: 'half of the memory of this machine',
  },
  {
    flag: 'functions-timeout',
    env: 'OTELA_FUNCTIONS_TIMEOUT',
    kind: 'value',
    value: 'DURATION',
    help: 'maximum duration of load() and of each call of a function',
    otherwise: '15m',
  },
  {
    flag: 'span-nodes',
    env: 'OTELA_SPAN_NODES',
    kind: 'switch',
    value: '',
    help: 'one engine spans all nodes of the job: rank 0 registers it, the other ranks only watch their part',
    otherwise: 'from --nnodes in the command',
  },
  {
    flag: 'fatal-pattern',
    env: 'OTELA_FATAL_PATTERN',
    kind: 'repeat',
    value: 'REGEX',
    help: "if a line of the engine's output matches, the agent ends the engine and exits; repeat; none: drop earlier and built-in patterns",
    otherwise: 'CUDA and NCCL errors',
  },
  {
    flag: 'engine-probe-after',
    env: 'OTELA_ENGINE_PROBE_AFTER',
    kind: 'value',
    value: 'DURATION',
    help: 'if requests wait and the engine that this agent started has sent nothing for this long, the agent requests one token; 0: never',
    otherwise: '2m',
  },
  {
    flag: 'engine-probe-timeout',
    env: 'OTELA_ENGINE_PROBE_TIMEOUT',
    kind: 'value',
    value: 'DURATION',
    help: 'restart the engine if it sends nothing for this long after that request; must be longer than any prefill',
    otherwise: '8m',
  },
  {
    flag: 'ends-at',
    env: 'OTELA_ENDS_AT',
    kind: 'value',
    value: 'TIME',
    help: 'when this node ends (RFC 3339, or +DURATION from now); overrides the end time from the batch system',
    otherwise: "the job's end time from the batch system",
  },
  {
    flag: 'drain-before',
    env: 'OTELA_DRAIN_BEFORE',
    kind: 'value',
    value: 'DURATION',
    help: "start to drain this long before the job's end; 0: never",
    otherwise: '60s, at most a tenth of the time left',
  },
  {
    flag: 'no-remote-logs',
    env: 'OTELA_NO_REMOTE_LOGS',
    kind: 'switch',
    value: '',
    help: 'never send the output of the engine or the agent to gateways',
  },
  {
    flag: 'log-dir',
    env: 'OTELA_LOG_DIR',
    kind: 'value',
    value: 'DIR',
    help: 'directory for the last output of the engine and the agent when they end; the newest 100 are kept',
    otherwise: 'not saved',
  },
  {
    flag: 'drain-timeout',
    env: 'OTELA_DRAIN_TIMEOUT',
    kind: 'value',
    value: 'DURATION',
    help: 'maximum wait for running requests while draining',
    otherwise: 'see "Ending"',
  },
  {
    flag: 'mesh',
    env: 'OTELA_MESH',
    kind: 'value',
    value: 'HOST[:PORT]|:PORT|off',
    help: 'address where other agents reach this agent; it does not answer unauthenticated peers',
    otherwise: 'all addresses, a free port',
  },
  {
    flag: 'peer',
    env: 'OTELA_PEER',
    kind: 'repeat',
    value: 'HOST:PORT',
    help: 'another agent, to find more agents through; if no gateway can be reached, it forwards the admission; repeat',
  },
  {
    flag: 'peer-release-keys',
    env: 'OTELA_PEER_RELEASE_KEYS',
    kind: 'repeat',
    value: 'KEY',
    help: 'accept only agents of a release signed with one of these keys; repeat, or separate with commas',
    otherwise: 'every agent with a valid ticket',
  },
  {
    flag: 'oldest-peer',
    env: 'OTELA_OLDEST_PEER',
    kind: 'value',
    value: 'VERSION',
    help: 'with --peer-release-keys: the oldest release that is accepted',
    otherwise: '0.1.0',
  },
  {
    flag: 'relay',
    env: 'OTELA_RELAY',
    kind: 'value',
    value: 'HOST:PORT',
    help: 'reach every gateway through this agent, which was started with --offer-relay',
  },
  {
    flag: 'offer-relay',
    env: 'OTELA_OFFER_RELAY',
    kind: 'switch',
    value: '',
    help: "relay for agents that cannot reach each other; agents with the same join token also reach this agent's gateways through it",
  },
  {
    flag: 'ingress',
    env: 'OTELA_INGRESS',
    kind: 'value',
    value: 'HOST:PORT',
    help: 'serve an OpenAI endpoint on this address, over the mesh and without a gateway; its key is in STATE/ingress.key',
  },
  {
    flag: 'metrics',
    env: 'OTELA_METRICS',
    kind: 'value',
    value: 'HOST:PORT',
    help: 'serve GET /metrics for Prometheus on this address, unencrypted; its key is in STATE/metrics.key. Without it: otela-agent metrics',
  },
  {
    flag: 'metrics-token-file',
    env: 'OTELA_METRICS_TOKEN_FILE',
    kind: 'value',
    value: 'FILE',
    help: 'file with the key for --metrics, in place of STATE/metrics.key (chmod 600)',
  },
  {
    flag: 'trust',
    env: 'OTELA_TRUST',
    kind: 'repeat',
    value: 'PROVIDER',
    help: 'providers of nodes that may receive requests from the ingress; repeat, or separate with commas',
    otherwise: 'your own',
  },
  {
    flag: 'policy',
    env: 'OTELA_POLICY',
    kind: 'value',
    value: 'NAME|FILE.ts',
    help: 'routing policy of the ingress: random, round-robin, weighted, least-load, prefix-affinity, or a TypeScript file',
    otherwise: 'least-load; prefix-affinity if a request names a conversation',
  },
  {
    flag: 'serve-to',
    env: 'OTELA_SERVE_TO',
    kind: 'repeat',
    value: 'PROVIDER',
    help: 'providers of ingresses that may send requests to this node; repeat, or separate with commas',
    otherwise: 'your own',
  },
  {
    flag: 'weights',
    env: 'OTELA_WEIGHTS',
    kind: 'repeat',
    value: 'SOURCE',
    help: 'weights to copy to local disk before the engine starts: hub:ORG/NAME[@REVISION], dir:/PATH or s3://BUCKET/PREFIX; {{weights}} in the command becomes the directory of the first',
  },
  {
    flag: 'environment',
    env: 'OTELA_ENVIRONMENT',
    kind: 'value',
    value: 'SOURCE',
    help: "the engine's environment, copied to local disk before it starts: a packed venv or conda environment (.tar, .tar.gz, .tar.zst), or an image (.sif, .sqsh); {{environment}} in the command becomes its directory or file",
  },
  {
    flag: 'weights-dir',
    env: 'OTELA_WEIGHTS_DIR',
    kind: 'value',
    value: 'DIR',
    help: 'directory for weights, in the layout of a Hugging Face cache; other nodes of the cluster can copy them from here',
    otherwise:
      'with --weights or --environment: $SLURM_TMPDIR; otherwise $TMPDIR or /tmp if it is not in memory; otherwise /dev/shm',
  },
  {
    flag: 'weights-max',
    env: 'OTELA_WEIGHTS_MAX',
    kind: 'value',
    value: 'SIZE',
    help: 'maximum disk space for weights, for example 500GB; above it, the least recently used weights are deleted',
    otherwise: '80 % of the disk; half of it if it is in memory',
  },
  {
    flag: 'weights-rate',
    env: 'OTELA_WEIGHTS_RATE',
    kind: 'value',
    value: 'SIZE',
    help: 'maximum bytes per second of all transfers of weights to other nodes, for example 500MB',
    otherwise: 'no limit',
  },
  {
    flag: 'weights-uploads',
    env: 'OTELA_WEIGHTS_UPLOADS',
    kind: 'value',
    value: 'N',
    help: 'maximum nodes that weights are sent to at a time',
    otherwise: '2',
  },
  {
    flag: 'weights-clusters',
    env: 'OTELA_WEIGHTS_CLUSTERS',
    kind: 'repeat',
    value: 'CLUSTER',
    help: 'other clusters to exchange weights with (CLUSTER@ISSUER if it has another issuer)',
    otherwise: 'none',
  },
  {
    flag: 'release-dir',
    env: 'OTELA_RELEASE_DIR',
    kind: 'value',
    value: 'DIR',
    help: 'directory with manifest.json and manifest.sig of the release of this program',
    otherwise: "the program's directory, or its parent",
  },
  {
    flag: 'config',
    env: 'OTELA_CONFIG',
    kind: 'value',
    value: 'FILE',
    help: 'configuration file: one `flag = value` per line',
    otherwise: '~/.config/otela-agent/config',
  },
] as const satisfies readonly Setting[];

/** Name of a setting: its flag, or its variable if it has no flag. */
export type SettingName = Exclude<(typeof SETTINGS)[number]['flag'], ''> | 'OTELA_ENGINE_KEY';

export function settingName(setting: (typeof SETTINGS)[number]): SettingName {
  return setting.flag === '' ? 'OTELA_ENGINE_KEY' : setting.flag;
}

/** The engine's command line follows `--` or this flag. */
export const COMMAND_FLAG = {
  process: { value: 'COMMAND…', rest: true, takes: 'command', help: 'same as -- COMMAND…' },
} as const satisfies Flags;

/** The flags of `start`, `doctor` and `config`. */
export const START_FLAGS: Flags = {
  ...Object.fromEntries(SETTINGS.filter(({ flag }) => flag !== '').map((setting) => [setting.flag, flagOf(setting)])),
  ...COMMAND_FLAG,
};

function flagOf({ kind, value, help, otherwise }: Setting): Flag {
  return {
    help,
    ...(otherwise === undefined ? {} : { otherwise }),
    ...(kind === 'switch' ? {} : { value, takes: takenFor(value) }),
    ...(kind === 'repeat' ? { repeat: true } : {}),
  };
}

/** Placeholders show what a shell may complete: files, directories, or words. */
function takenFor(placeholder: string): AcceptedValues {
  if (placeholder === 'FILE') return 'file';
  if (placeholder === 'DIR') return 'directory';
  return /^[a-z]+(\|[a-z]+)+$/.test(placeholder) ? placeholder.split('|') : 'word';
}

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
    help: 'gateway to serve; repeat or separate by commas',
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
    help: 'join token; shows in ps, prefer the file',
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
  { flag: 'region', env: 'OTELA_REGION', kind: 'value', value: 'NAME', help: 'where it stands, e.g. eu-central' },
  {
    flag: 'tier',
    env: 'OTELA_TIER',
    kind: 'value',
    value: 'stable|volatile',
    help: 'how long it is likely to stay',
    otherwise: 'volatile in a batch job, else stable',
  },
  {
    flag: 'fact',
    env: 'OTELA_FACT',
    kind: 'repeat',
    value: '[MODEL:]KEY=VALUE',
    help: 'what the engine does not tell: context, quantization, engine, revision',
  },
  {
    flag: 'label',
    env: 'OTELA_LABEL',
    kind: 'repeat',
    value: 'KEY=VALUE',
    help: 'free label shown in the registry; repeat',
  },
  {
    flag: 'engine-port',
    env: 'OTELA_ENGINE_PORT',
    kind: 'value',
    value: 'PORT',
    help: 'port of the engine on this machine',
    otherwise: "the command's own --port, else 8000 for vllm, 30000 for sglang",
  },
  {
    flag: 'engine-url',
    env: 'OTELA_ENGINE_URL',
    kind: 'value',
    value: 'URL',
    help: 'address of the engine, with a path prefix where it has one',
  },
  {
    flag: 'engine-key-file',
    env: 'OTELA_ENGINE_KEY_FILE',
    kind: 'value',
    value: 'FILE',
    help: "file with the engine's own API key",
  },
  {
    flag: 'prefill-url',
    env: 'OTELA_PREFILL_URL',
    kind: 'value',
    value: 'URL',
    help: 'engine that computes the prompts of this one: both serve as one replica (vLLM, SGLang)',
  },
  {
    flag: 'prefill-bootstrap-port',
    env: 'OTELA_PREFILL_BOOTSTRAP_PORT',
    kind: 'value',
    value: 'PORT',
    help: "--disaggregation-bootstrap-port of SGLang's prefill engine",
    otherwise: '8998',
  },
  { flag: '', env: 'OTELA_ENGINE_KEY', kind: 'value', value: 'KEY', help: "the engine's own API key", secret: true },
  {
    flag: 'delegate-file',
    env: 'OTELA_DELEGATE_FILE',
    kind: 'value',
    value: 'FILE',
    help: "provider's delegate key (otela-agent vouch; chmod 600): clients that pin the provider seal requests to this node",
  },
  {
    flag: 'evidence-command',
    env: 'OTELA_EVIDENCE_COMMAND',
    kind: 'value',
    value: 'FILE',
    help: "site's helper that reports on a confidential VM, for clients that verify it (docs/sealed.md)",
  },
  {
    flag: 'evidence-kinds',
    env: 'OTELA_EVIDENCE_KINDS',
    kind: 'value',
    value: 'KINDS',
    help: 'what it reports on, separated by commas: tdx, snp, nvidia',
  },
  {
    flag: 'accept-deployments',
    env: 'OTELA_ACCEPT_DEPLOYMENTS',
    kind: 'value',
    value: 'DIR',
    help: 'start without an engine and run what the gateway orders, of the commands in DIR/NAME.json and no other',
  },
  {
    flag: 'max-running',
    env: 'OTELA_MAX_RUNNING',
    kind: 'value',
    value: 'N',
    help: 'requests at the engine at once; more are sent elsewhere, or wait at the gateway',
    otherwise: 'no limit',
  },
  {
    flag: 'max-waiting',
    env: 'OTELA_MAX_WAITING',
    kind: 'value',
    value: 'N',
    help: 'requests that may wait inside the engine, by its own /metrics; none: no limit',
    otherwise: '8',
  },
  {
    flag: 'allow-functions',
    env: 'OTELA_ALLOW_FUNCTIONS',
    kind: 'repeat',
    value: 'PROJECT',
    help: "run these projects' own Python functions as lines of batches, with all rights of this user; all: everybody's",
    otherwise: 'none',
  },
  {
    flag: 'functions-python',
    env: 'OTELA_FUNCTIONS_PYTHON',
    kind: 'value',
    value: 'FILE',
    help: 'interpreter of functions, as VENV/bin/python',
    otherwise: 'python3',
  },
  {
    flag: 'functions-loaded',
    env: 'OTELA_FUNCTIONS_LOADED',
    kind: 'value',
    value: 'N',
    help: 'functions that are loaded at once',
    otherwise: '1',
  },
  {
    flag: 'functions-memory',
    env: 'OTELA_FUNCTIONS_MEMORY',
    kind: 'value',
    value: 'MIB',
    help: 'resident memory of one function, its children included',
    otherwise: 'half of this machine',
  },
  {
    flag: 'functions-timeout',
    env: 'OTELA_FUNCTIONS_TIMEOUT',
    kind: 'value',
    value: 'DURATION',
    help: 'longest load() and longest call of a function',
    otherwise: '15m',
  },
  {
    flag: 'span-nodes',
    env: 'OTELA_SPAN_NODES',
    kind: 'switch',
    value: '',
    help: 'one engine over all nodes of the job: rank 0 registers, the others only supervise',
    otherwise: "found in the command's --nnodes",
  },
  {
    flag: 'fatal-pattern',
    env: 'OTELA_FATAL_PATTERN',
    kind: 'repeat',
    value: 'REGEX',
    help: 'a line of the engine after which the node gives itself up; repeat; none: not even the known ones',
    otherwise: 'CUDA and NCCL errors',
  },
  {
    flag: 'engine-probe-after',
    env: 'OTELA_ENGINE_PROBE_AFTER',
    kind: 'value',
    value: 'DURATION',
    help: 'requests wait, and the engine that this agent runs has said nothing for so long: one token is asked of it; 0 never',
    otherwise: '2m',
  },
  {
    flag: 'engine-probe-timeout',
    env: 'OTELA_ENGINE_PROBE_TIMEOUT',
    kind: 'value',
    value: 'DURATION',
    help: 'an engine that gives neither that token nor anything else for so long is started again: longer than any prefill',
    otherwise: '8m',
  },
  {
    flag: 'ends-at',
    env: 'OTELA_ENDS_AT',
    kind: 'value',
    value: 'TIME',
    help: 'when this node ends (RFC 3339, or +DURATION from now); counts before what the batch system says',
    otherwise: "asked of the job's batch system",
  },
  {
    flag: 'drain-before',
    env: 'OTELA_DRAIN_BEFORE',
    kind: 'value',
    value: 'DURATION',
    help: "begin to drain this long before the job's end; 0 never",
    otherwise: '60s, at most a tenth of the time left',
  },
  {
    flag: 'no-remote-logs',
    env: 'OTELA_NO_REMOTE_LOGS',
    kind: 'switch',
    value: '',
    help: 'gateways are shown no output of engine and agent, neither now nor at the end',
  },
  {
    flag: 'log-dir',
    env: 'OTELA_LOG_DIR',
    kind: 'value',
    value: 'DIR',
    help: 'where the last output of engine and agent is kept when they end; the newest 100',
    otherwise: 'nowhere',
  },
  {
    flag: 'drain-timeout',
    env: 'OTELA_DRAIN_TIMEOUT',
    kind: 'value',
    value: 'DURATION',
    help: 'longest wait for running requests when draining',
    otherwise: 'see "Ending"',
  },
  {
    flag: 'mesh',
    env: 'OTELA_MESH',
    kind: 'value',
    value: 'HOST[:PORT]|:PORT|off',
    help: 'where other agents reach this one; strangers get no answer there',
    otherwise: 'all addresses, a free port',
  },
  {
    flag: 'peer',
    env: 'OTELA_PEER',
    kind: 'repeat',
    value: 'HOST:PORT',
    help: 'an agent that may know others, and passes the admission on where no gateway can be reached; repeat',
  },
  {
    flag: 'peer-release-keys',
    env: 'OTELA_PEER_RELEASE_KEYS',
    kind: 'repeat',
    value: 'KEY',
    help: 'accept only agents of a release that one of these keys signed; repeat or separate by commas',
    otherwise: 'every agent with a good ticket',
  },
  {
    flag: 'oldest-peer',
    env: 'OTELA_OLDEST_PEER',
    kind: 'value',
    value: 'VERSION',
    help: 'with --peer-release-keys: the oldest release of another agent that is accepted',
    otherwise: '0.1.0',
  },
  {
    flag: 'relay',
    env: 'OTELA_RELAY',
    kind: 'value',
    value: 'HOST:PORT',
    help: 'an agent started with --offer-relay: every gateway is reached through it',
  },
  {
    flag: 'offer-relay',
    env: 'OTELA_OFFER_RELAY',
    kind: 'switch',
    value: '',
    help: "agents without a way to each other meet here; those with the same join token reach this agent's gateways through it",
  },
  {
    flag: 'ingress',
    env: 'OTELA_INGRESS',
    kind: 'value',
    value: 'HOST:PORT',
    help: 'an OpenAI endpoint on this machine, over the mesh and without any gateway; its key is in STATE/ingress.key',
  },
  {
    flag: 'metrics',
    env: 'OTELA_METRICS',
    kind: 'value',
    value: 'HOST:PORT',
    help: 'GET /metrics for Prometheus, in clear; the key is in STATE/metrics.key. On this machine: otela-agent metrics',
  },
  {
    flag: 'metrics-token-file',
    env: 'OTELA_METRICS_TOKEN_FILE',
    kind: 'value',
    value: 'FILE',
    help: 'file with the key for --metrics instead (chmod 600)',
  },
  {
    flag: 'trust',
    env: 'OTELA_TRUST',
    kind: 'repeat',
    value: 'PROVIDER',
    help: 'providers whose nodes the ingress may ask; repeat or separate by commas',
    otherwise: 'your own',
  },
  {
    flag: 'policy',
    env: 'OTELA_POLICY',
    kind: 'value',
    value: 'NAME|FILE.ts',
    help: 'how the ingress chooses: random, round-robin, weighted, least-load, prefix-affinity, or a file of your own',
    otherwise: 'least-load, and prefix-affinity where a request names a conversation',
  },
  {
    flag: 'serve-to',
    env: 'OTELA_SERVE_TO',
    kind: 'repeat',
    value: 'PROVIDER',
    help: "providers whose agents' ingresses this node serves; repeat or separate by commas",
    otherwise: 'your own',
  },
  {
    flag: 'weights',
    env: 'OTELA_WEIGHTS',
    kind: 'repeat',
    value: 'SOURCE',
    help: 'weights that are on local disk before the engine begins: hub:ORG/NAME[@REVISION], dir:/PATH or s3://BUCKET/PREFIX; {{weights}} in the command is the directory of the first',
  },
  {
    flag: 'environment',
    env: 'OTELA_ENVIRONMENT',
    kind: 'value',
    value: 'SOURCE',
    help: 'what the engine runs in, on local disk before it begins: a packed venv or conda environment (.tar, .tar.gz, .tar.zst), or an image (.sif, .sqsh); {{environment}} in the command is its directory or file',
  },
  {
    flag: 'weights-dir',
    env: 'OTELA_WEIGHTS_DIR',
    kind: 'value',
    value: 'DIR',
    help: 'where weights are kept, in the layout of a Hugging Face cache, and given to other nodes of the cluster',
    otherwise: 'with --weights or --environment: $SLURM_TMPDIR, else $TMPDIR or /tmp unless in memory, else /dev/shm',
  },
  {
    flag: 'weights-max',
    env: 'OTELA_WEIGHTS_MAX',
    kind: 'value',
    value: 'SIZE',
    help: 'bytes that weights may take, as in 500GB; beyond it those go that were not used for longest',
    otherwise: '80 % of the disk; in memory half of it',
  },
  {
    flag: 'weights-rate',
    env: 'OTELA_WEIGHTS_RATE',
    kind: 'value',
    value: 'SIZE',
    help: 'bytes a second that all transfers of weights to other nodes take together, as in 500MB',
    otherwise: 'as much as goes',
  },
  {
    flag: 'weights-uploads',
    env: 'OTELA_WEIGHTS_UPLOADS',
    kind: 'value',
    value: 'N',
    help: 'nodes that weights are sent to at one time',
    otherwise: '2',
  },
  {
    flag: 'weights-clusters',
    env: 'OTELA_WEIGHTS_CLUSTERS',
    kind: 'repeat',
    value: 'CLUSTER',
    help: 'clusters beside this one that weights are given to and taken from (CLUSTER@ISSUER of another issuer)',
    otherwise: 'none',
  },
  {
    flag: 'release-dir',
    env: 'OTELA_RELEASE_DIR',
    kind: 'value',
    value: 'DIR',
    help: 'directory with the manifest.json and manifest.sig of the release that this program is of',
    otherwise: 'beside the program, or one above',
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
  process: { value: 'COMMAND…', rest: true, takes: 'command', help: 'the same as -- COMMAND…' },
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

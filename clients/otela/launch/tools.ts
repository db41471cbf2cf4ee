/**
 * The tools that `otela launch` knows, and how each is pointed at a gateway. docs/clients.md has the same settings for
 * people, with the versions that were tried.
 */
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { GatewayModel } from '../gateway-models.ts';

interface LaunchContext {
  /** URL of the gateway, without `/v1`. */
  gateway: string;
  key: string;
  /** The model of the tool's first conversation. */
  model: GatewayModel;
  /** All models that the tool may offer. */
  models: readonly GatewayModel[];
}

/** What `--config` writes. The file never contains the key: it names the file or the command that has it. */
export type ToolFile =
  /** A file that belongs to `otela`; `--restore` deletes it. */
  | { kind: 'own'; path: () => string; text: (context: FileContext) => string; use: string }
  /** Members of the tool's own JSON file; `--restore` gives them their previous values. */
  | { kind: 'members'; path: () => string; members: (context: FileContext) => Member[]; use: string };

/** The context of a file: the key's file in place of the key. */
interface FileContext extends Omit<LaunchContext, 'key'> {
  keyFile: string;
}

/** A member of a JSON file, by the names on the way to it. Undefined: the member is removed. */
export interface Member {
  path: readonly string[];
  value: unknown;
}

export interface Tool {
  title: string;
  program: string;
  /** How to install the tool. */
  install: string;
  /** Environment and arguments with which the tool uses the gateway for one run. */
  env: (context: LaunchContext) => Record<string, string>;
  args?: (context: LaunchContext) => string[];
  /** A JSON file. Its member `env` takes precedence over the environment. */
  overrides?: () => string;
  file?: ToolFile;
}

/** The first words of every file that belongs to `otela`. */
export const OWN_MARK = '# Written by "otela launch';

/** The variable from which a tool reads the key, if its configuration names a variable. */
const KEY_VARIABLE = 'OTELA_API_KEY';
/** The command that prints the key. */
const TOKEN_COMMAND = ['otela', 'token'] as const;

const baseOf = ({ gateway }: Pick<LaunchContext, 'gateway'>) => `${gateway}/v1`;
const home = (variable: string, folder: string) => process.env[variable] || join(homedir(), folder);

const claudeSettings = () => join(home('CLAUDE_CONFIG_DIR', '.claude'), 'settings.json');

/** https://code.claude.com/docs/en/llm-gateway-connect */
function claudeVariables({ gateway, model }: Pick<LaunchContext, 'gateway' | 'model'>): Record<string, string> {
  return {
    ANTHROPIC_BASE_URL: gateway,
    ANTHROPIC_MODEL: model.id,
    ANTHROPIC_DEFAULT_OPUS_MODEL: model.id,
    ANTHROPIC_DEFAULT_SONNET_MODEL: model.id,
    ANTHROPIC_DEFAULT_HAIKU_MODEL: model.id,
    CLAUDE_CODE_SUBAGENT_MODEL: model.id,
    // A block at the beginning of the prompt that changes with each version would empty the engine's prefix cache.
    CLAUDE_CODE_ATTRIBUTION_HEADER: '0',
    // Without it, Claude Code assumes a million tokens for a model that it does not know.
    ...(model.context !== undefined && { CLAUDE_CODE_MAX_CONTEXT_TOKENS: String(model.context) }),
  };
}

/** TOML's basic strings have the escapes of JSON. */
const toml = (text: string) => JSON.stringify(text).replaceAll('\u007f', '\\u007f');

/** https://developers.openai.com/codex/config-advanced */
function codexArguments(context: LaunchContext): string[] {
  const { model } = context;
  const settings = [
    'model_provider="otela"',
    'model_providers.otela.name="OpenTela"',
    `model_providers.otela.base_url=${toml(baseOf(context))}`,
    'model_providers.otela.wire_api="responses"',
    `model_providers.otela.env_key="${KEY_VARIABLE}"`,
    ...(model.context === undefined ? [] : [`model_context_window=${model.context}`]),
  ];
  return [...settings.flatMap((setting) => ['-c', setting]), '-m', model.id];
}

function codexProfile(context: FileContext): string {
  const { model } = context;
  const [command, ...args] = TOKEN_COMMAND;
  return `${OWN_MARK} codex --config". "otela launch codex --restore" deletes it.
model = ${toml(model.id)}
model_provider = "otela"
${model.context === undefined ? '' : `model_context_window = ${model.context}\n`}
[model_providers.otela]
name = "OpenTela"
base_url = ${toml(baseOf(context))}
wire_api = "responses"

[model_providers.otela.auth]
command = "${command}"
args = [${args.map(toml).join(', ')}]
`;
}

/** https://opencode.ai/docs/providers/#custom-provider */
function opencodeProvider(context: Pick<LaunchContext, 'gateway' | 'models'>, apiKey: string) {
  const entries = context.models.map(({ id, context: tokens, seesImages }) => [
    id,
    {
      name: id,
      ...(tokens !== undefined && { limit: { context: tokens, output: Math.min(tokens, OUTPUT_TOKENS) } }),
      ...(seesImages && { modalities: { input: ['text', 'image'], output: ['text'] } }),
    },
  ]);
  return {
    npm: '@ai-sdk/openai-compatible',
    name: 'OpenTela',
    options: { baseURL: baseOf(context), apiKey },
    models: Object.fromEntries(entries),
  };
}

/** Maximum tokens of a response that opencode reserves; it has the same default for unknown models. */
const OUTPUT_TOKENS = 32_000;

export const TOOLS: Readonly<Record<string, Tool>> = {
  claude: {
    title: 'Claude Code',
    program: 'claude',
    install: 'npm install -g @anthropic-ai/claude-code',
    env: (context) => ({ ...claudeVariables(context), ANTHROPIC_AUTH_TOKEN: context.key, ANTHROPIC_API_KEY: '' }),
    overrides: claudeSettings,
    file: {
      kind: 'members',
      path: claudeSettings,
      members: (context) => [
        { path: ['apiKeyHelper'], value: TOKEN_COMMAND.join(' ') },
        // Otherwise Claude Code would send a key of another provider to the gateway.
        { path: ['env', 'ANTHROPIC_AUTH_TOKEN'], value: undefined },
        { path: ['env', 'ANTHROPIC_API_KEY'], value: undefined },
        ...Object.entries(claudeVariables(context)).map(([name, value]) => ({ path: ['env', name], value })),
      ],
      use: 'claude',
    },
  },
  codex: {
    title: 'Codex',
    program: 'codex',
    install: 'npm install -g @openai/codex',
    env: ({ key }) => ({ [KEY_VARIABLE]: key }),
    args: codexArguments,
    file: {
      kind: 'own',
      path: () => join(home('CODEX_HOME', '.codex'), 'otela.config.toml'),
      text: codexProfile,
      use: 'codex --profile otela',
    },
  },
  opencode: {
    title: 'opencode',
    program: 'opencode',
    install: 'npm install -g opencode-ai',
    env: (context) => ({
      [KEY_VARIABLE]: context.key,
      OPENCODE_CONFIG_CONTENT: JSON.stringify({
        provider: { otela: opencodeProvider(context, `{env:${KEY_VARIABLE}}`) },
        model: `otela/${context.model.id}`,
      }),
    }),
    file: {
      kind: 'members',
      path: () => join(home('XDG_CONFIG_HOME', '.config'), 'opencode', 'opencode.json'),
      members: (context) => [
        { path: ['provider', 'otela'], value: opencodeProvider(context, `{file:${context.keyFile}}`) },
        { path: ['model'], value: `otela/${context.model.id}` },
      ],
      use: 'opencode',
    },
  },
  qwen: {
    title: 'Qwen Code',
    program: 'qwen',
    install: 'npm install -g @qwen-code/qwen-code',
    env: (context) => ({
      OPENAI_BASE_URL: baseOf(context),
      OPENAI_API_KEY: context.key,
      OPENAI_MODEL: context.model.id,
    }),
  },
  copilot: {
    title: 'GitHub Copilot CLI',
    program: 'copilot',
    install: 'npm install -g @github/copilot',
    env: (context) => ({
      COPILOT_PROVIDER_BASE_URL: baseOf(context),
      COPILOT_PROVIDER_API_KEY: context.key,
      COPILOT_MODEL: context.model.id,
    }),
  },
  aider: {
    title: 'Aider',
    program: 'aider',
    install: 'pip install aider-install && aider-install',
    env: (context) => ({ OPENAI_API_BASE: baseOf(context), OPENAI_API_KEY: context.key }),
    args: ({ model }) => ['--model', `openai/${model.id}`],
  },
  goose: {
    title: 'Goose',
    program: 'goose',
    install: 'https://goose-docs.ai/docs/getting-started/installation/',
    env: ({ gateway, key, model }) => ({
      GOOSE_PROVIDER: 'openai',
      GOOSE_MODEL: model.id,
      OPENAI_HOST: gateway,
      OPENAI_BASE_PATH: 'v1/chat/completions',
      OPENAI_API_KEY: key,
    }),
  },
};

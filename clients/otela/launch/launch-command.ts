/** `otela launch TOOL`: runs a coding tool with the models of a gateway, or writes the tool's configuration. */
import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { UsageError } from '../../../shared/command-line/index.ts';
import type { Output } from '../../../shared/terminal/command-output.ts';
import { printable } from '../../../shared/terminal/printable.ts';
import { nearestName } from '../../../shared/text/nearest-name.ts';
import type { GatewayAccess } from '../gateway-access.ts';
import { type GatewayModel, gatewayModels } from '../gateway-models.ts';
import { differingMembers, restore, setMembers, writeOwnFile } from './tool-file.ts';
import { TOOLS, type Tool, type ToolFile } from './tools.ts';

/** Number of models that an error message lists. */
const LISTED_MAX = 20;

interface Launch {
  name: string;
  model: string | undefined;
  /** Arguments for the tool. */
  args: readonly string[];
}

/** @throws UsageError that lists the tools */
export function toolOf(name: string | undefined): Tool {
  const tool = name !== undefined && Object.hasOwn(TOOLS, name) ? TOOLS[name] : undefined;
  if (tool !== undefined) return tool;
  const names = Object.keys(TOOLS);
  const near = name === undefined ? undefined : nearestName(name, names);
  const hint = near === undefined ? '' : ` Did you mean ${near}?`;
  throw new UsageError(
    `${name === undefined ? 'a tool is missing' : `"${name}" is not a known tool`}: ${names.join(', ')}.${hint} docs/clients.md has others`,
  );
}

/** @throws UsageError if the gateway does not serve the model, or if several are served and none was named */
export function chosenModel(models: readonly GatewayModel[], wanted: string | undefined): GatewayModel {
  const [only, ...others] = models;
  if (wanted === undefined && only !== undefined && others.length === 0) return only;
  const found = models.find(({ id }) => id === wanted);
  if (found !== undefined) return found;
  const ids = models.slice(0, LISTED_MAX).map(({ id }) => id);
  const listed = ids.length === 0 ? 'none' : ids.join(', ');
  const why = wanted === undefined ? 'choose a model with --model' : `"${wanted}" is not served now`;
  throw new UsageError(printable(`${why}; this key may use: ${listed}`));
}

/** Runs the tool. Resolves with its exit code. */
export async function launchTool(access: GatewayAccess, { name, model, args }: Launch): Promise<number> {
  const tool = toolOf(name);
  const models = await gatewayModels(access);
  const context = { ...access, model: chosenModel(models, model), models };
  const env = tool.env(context);
  requirePrecedence(name, tool, env);
  return run(tool, [...(tool.args?.(context) ?? []), ...args], env);
}

/**
 * Requires that no file of the tool overrides the environment: the tool would send the key of this gateway to another
 * address, or the key of another provider to this gateway.
 * @throws UsageError
 */
function requirePrecedence(name: string, { title, overrides }: Tool, env: Record<string, string>): void {
  if (overrides === undefined) return;
  const names = differingMembers(overrides(), 'env', env);
  if (names.length === 0) return;
  throw new UsageError(
    `${overrides()} sets ${names.join(', ')}, and ${title} prefers that file: remove them, or use otela launch ${name} --config`,
  );
}

function run({ title, program, install }: Tool, args: string[], env: Record<string, string>): Promise<number> {
  const child = spawn(program, args, { stdio: 'inherit', env: { ...process.env, ...env } });
  // The terminal sends Ctrl+C to the tool, too. The tool decides whether to end.
  const ignore = () => {};
  process.on('SIGINT', ignore);
  return new Promise<number>((resolve, reject) => {
    child.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') return reject(error);
      reject(new UsageError(`${title} is not installed: there is no ${program} on the PATH. Install it: ${install}`));
    });
    child.once('exit', (code, signal) => resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal])));
  }).finally(() => process.removeListener('SIGINT', ignore));
}

/** `--config`: writes the tool's configuration. @throws UsageError */
export async function configureTool(access: GatewayAccess, launch: Launch, out: Output): Promise<void> {
  const { name, model } = launch;
  const { title, file } = requireFile(name);
  if (access.file === undefined)
    throw new UsageError('the key is in the environment; run otela login, so that the tool reads it from a file');
  const models = await gatewayModels(access);
  const { gateway, file: keyFile } = access;
  const context = { gateway, keyFile, model: chosenModel(models, model), models };
  const path = file.path();
  if (file.kind === 'own') writeOwnFile(name, path, file.text(context));
  else setMembers(name, path, file.members(context));
  out.print(printable(`${title} uses ${context.model.id} at ${gateway}: run ${file.use}`));
  out.print(`Changed: ${path}. To restore it: otela launch ${name} --restore`);
}

/** `--restore` @throws UsageError */
export function restoreTool(name: string, out: Output): void {
  const { title } = requireFile(name);
  const file = restore(name);
  out.print(file === undefined ? `otela did not configure ${title}.` : `Restored: ${file}`);
}

function requireFile(name: string): { title: string; file: ToolFile } {
  const { title, file } = toolOf(name);
  if (file === undefined)
    throw new UsageError(`${title} is configured only for one run: otela launch ${name}, without --config`);
  return { title, file };
}

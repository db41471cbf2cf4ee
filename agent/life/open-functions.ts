/** Opens what runs users' functions on this node. */
import { mkdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inBackground } from '../../shared/timing/in-background.ts';
import { BatchGatewayClient } from '../batch/batch-gateway-client.ts';
import { FunctionPackages } from '../batch/functions/function-packages.ts';
import { FunctionRunner } from '../batch/functions/function-runner.ts';
import { FunctionSandbox, sandboxFault } from '../batch/functions/function-sandbox.ts';
import { FunctionStarter } from '../batch/functions/function-starter.ts';
import { LoadedFunctions } from '../batch/functions/loaded-functions.ts';
import type { FunctionsConfig } from '../config/functions-config.ts';
import { nvidiaDeviceNames } from '../host/nvidia-gpus.ts';
import { type RunTool, toolRunner } from '../host/run-tool.ts';
import { packedFormat, unpackEnvironment } from '../weights/environment/unpack-archive.ts';
import type { BatchService } from './agent-parts.ts';
import type { AgentWeights } from './agent-weights.ts';
import type { Session } from './session/session.ts';

type Env = Readonly<Record<string, string | undefined>>;

interface FunctionsOptions {
  functions: FunctionsConfig;
  gateways(): readonly URL[];
  proxy(gateway: URL): URL | undefined;
  session(): Session | undefined;
  /** When this node's job ends; undefined: no end is known. */
  ends(): Date | undefined;
  /** Number of requests at this node's engine. */
  interactive(): number;
  weights(): AgentWeights | undefined;
  env: Env;
  /** Paths with secrets of this agent: its state directory, its token file. */
  secrets: readonly string[];
  log(line: string): void;
}

/** Returns immediately. Functions run as soon as this node's GPUs and its sandbox are known. */
export function openFunctions(options: FunctionsOptions): BatchService {
  const { log } = options;
  const opening = openRunner(options).catch((error: unknown) => {
    log(`functions: ${String(error)}; none will run here`);
    return undefined;
  });
  return {
    drain: async (signal) => (await opening)?.drain(signal),
    close: async () => (await opening)?.close(),
  };
}

async function openRunner(options: FunctionsOptions): Promise<FunctionRunner | undefined> {
  const { functions, gateways, proxy, session, ends, interactive, env, log } = options;
  const { owners, limits } = functions;
  const run = toolRunner(env);
  const storeOf = () => {
    const weights = options.weights();
    return (
      weights && {
        directory: weights.status().directory,
        pull: weights.pullForFunction.bind(weights),
        packages: weights.packages.bind(weights),
      }
    );
  };
  const temporary = env.TMPDIR ?? tmpdir();
  const sandbox = await openSandbox(options, temporary, run);
  if (sandbox === 'missing') return undefined;
  const gpus = await nvidiaDeviceNames(run, env);
  const loadedMax = functions.loadedMax ?? Math.max(1, gpus.length);
  const bounds = { installMs: limits.loadMs, memoryBytes: limits.memoryBytes };
  const { packages: directory } = functions;
  const packages = new FunctionPackages({ directory, env, run, limits: bounds, store: storeOf, unpack, log });
  const starter = new FunctionStarter({ limits, env, temporary, run, packages, sandbox, weights: storeOf, log });
  inBackground('functions', starter.warm(), log);
  const host = new LoadedFunctions({ starter, loadedMax, gpus, temporary, now: () => performance.now(), log });
  return new FunctionRunner({
    gateways,
    open: (url) => new BatchGatewayClient(url, session, proxy(url)),
    host,
    owners,
    workers: loadedMax,
    admitted: () => session() !== undefined,
    endsInMs: () => (ends()?.getTime() ?? Number.POSITIVE_INFINITY) - Date.now(),
    interactive,
    log,
  });
}

/** Maximum bytes of an unpacked environment. */
const ENVIRONMENT_MAX_BYTES = 64 * 2 ** 30;

/** Unpacks the environment of a function. @throws WeightsError */
async function unpack(archive: string, directory: string, signal: AbortSignal): Promise<void> {
  const format = await packedFormat(archive);
  if (format === 'image') throw new Error('it is an image: pack it with conda-pack, as .tar.zst or .tar.gz');
  await mkdir(directory, { mode: 0o700 });
  const room = async (bytes: number) => {
    if (bytes > ENVIRONMENT_MAX_BYTES) throw new Error(`it has more than ${ENVIRONMENT_MAX_BYTES} bytes`);
  };
  await unpackEnvironment({ path: archive, format, directory, room, signal });
}

/**
 * @returns undefined: functions run without a sandbox; `missing`: they do not run, because the operator requires one
 */
async function openSandbox(
  options: FunctionsOptions,
  temporary: string,
  run: RunTool,
): Promise<FunctionSandbox | undefined | 'missing'> {
  const { functions, env, secrets, log } = options;
  const { sandbox, network } = functions;
  if (sandbox === 'off') return undefined;
  const fault = await sandboxFault(run, temporary);
  if (fault === undefined) {
    const { HOME: home, HF_HOME: hub, XDG_RUNTIME_DIR: runtime } = env;
    // Gated and private repositories are there. A function sees those that it declares.
    const weights = options.weights()?.status().directory ?? '';
    const hidden = [temporary, '/tmp', '/dev/shm', '/run/user', home ?? '', runtime ?? '', weights, ...secrets];
    const masked = [...secrets, ...(hub === undefined ? [] : [join(hub, 'token'), join(hub, 'stored_tokens')])];
    return new FunctionSandbox({ hidden, masked, network });
  }
  if (sandbox === 'required') {
    log(`functions: none runs here, because --functions-sandbox is required and does not work: ${fault}`);
    return 'missing';
  }
  log(`functions: no sandbox (${fault}); they run with all rights of this user`);
  return undefined;
}

/** Checks this machine for an agent's needs: GPUs, a job, an engine, a place for its state. */
import { tmpdir } from 'node:os';
import { dirname } from 'node:path';
import { detectBatchJob } from '../../../node/batch-systems/detect.ts';
import type { ServedModel } from '../../../shared/lattice/node-record.ts';
import { type CheckResult, checkFailed, checkPassed, checkWarning } from '../../../shared/terminal/check-result.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import { sandboxFault } from '../../batch/functions/function-sandbox.ts';
import { findInterpreter } from '../../batch/functions/python-interpreter.ts';
import type { FunctionsConfig } from '../../config/functions-config.ts';
import type { Env } from '../../config/setting.ts';
import type { StartConfig } from '../../config/start-config.ts';
import { applyFacts, type ModelFact } from '../../engine/declared-model-facts.ts';
import { isOccupied } from '../../engine/engine.ts';
import type { EngineTarget } from '../../engine/engine-address.ts';
import { EngineProbe } from '../../engine/engine-probe.ts';
import { FactReader } from '../../engine/facts/fact-reader.ts';
import type { ModelFacts } from '../../engine/facts/model-facts.ts';
import { missingCommand } from '../../engine/prepare-exec.ts';
import { inventory } from '../../host/hardware-inventory.ts';
import type { RunTool } from '../../host/run-tool.ts';
import { StateDir } from '../../host/state-directory.ts';
import { describeModel } from '../describe-model.ts';

export async function checkGpus(env: Env, run: RunTool): Promise<CheckResult> {
  const notes: string[] = [];
  const { gpus } = await inventory(env, run, (line) => notes.push(line));
  if (gpus.length > 0)
    return checkPassed('GPUs', `${gpus.length}: ${[...new Set(gpus.map(({ name }) => name))].join(', ')}`);
  return checkWarning(
    'GPUs',
    notes.map((note) => note.replace(/^GPUs: /, '')).join('; ') || 'none',
    'In a job, request them (--gpus or --gres). Without GPUs, an engine may still run on CPUs.',
  );
}

export async function checkJob(env: Env, run: RunTool): Promise<CheckResult> {
  const job = detectBatchJob(env);
  if (job === undefined) return checkPassed('batch job', 'not in a job: the agent runs until it is stopped');
  const end = (await job.askEnd?.(run)) ?? ({ kind: 'known', ends: job.ends } as const);
  const name = `${job.system} job ${job.id}`;
  if (end.kind === 'known' && end.ends !== undefined)
    return checkPassed('batch job', `${name}, ends ${end.ends.toISOString()}`);
  if (end.kind === 'known') return checkPassed('batch job', `${name}, without a time limit`);
  return checkWarning(
    'batch job',
    `${name}, its end time is unknown: ${end.reason}`,
    'Set --ends-at, or let the batch system send USR1 (#SBATCH --signal=B:USR1@120), so that the agent drains in time.',
  );
}

/**
 * Checks the engine's command, or the running engine. A command has not started yet, so its engine's address must be
 * free. Without a command, another program has started the engine, so it must answer.
 */
export async function checkEngine(
  { command, engine: target, facts }: Pick<StartConfig, 'command' | 'engine' | 'facts'>,
  env: Env,
): Promise<CheckResult> {
  if (command !== undefined) {
    const missing = missingCommand(command[0] ?? '', env.PATH);
    if (missing !== undefined)
      return checkFailed(
        'engine',
        missing,
        'Load its module or activate its environment before otela-agent, or give the full path.',
      );
    if (target === undefined || !(await isOccupied(target))) return checkPassed('engine', `found ${command[0]}`);
    return checkFailed(
      'engine',
      `another server already answers at ${target.origin}`,
      'Give the engine another --port. Another job on this node may use this one.',
    );
  }
  if (target === undefined) return checkPassed('engine', 'none: the agent would join idle');
  return checkRunningEngine(target, facts, env);
}

async function checkRunningEngine(
  target: EngineTarget,
  declared: readonly ModelFact[],
  env: Env,
): Promise<CheckResult> {
  const probe = new EngineProbe(target);
  const facts = new FactReader({
    ...{ target, command: undefined, env, now: () => performance.now(), onChange: () => {}, log: () => {} },
  });
  try {
    const seen = await probe.look();
    if (seen.kind === 'models') {
      const known = await facts.read(probe.listed).catch(() => new Map<string, ModelFacts>());
      const models = seen.models.map((model) => ({ ...known.get(model.id), ...model }));
      return checkModels(probe.url, applyFacts(models, {}, declared));
    }
    if (seen.kind === 'loading')
      return checkPassed('engine', `${probe.url} is still loading ${seen.models.map(({ id }) => id).join(', ')}`);
    const found = seen.kind === 'refused' ? `nothing listens at ${probe.url}` : `${probe.url}: ${seen.reason}`;
    return checkFailed('engine', found, 'Start it first, or check --engine-url, --engine-port and --engine-key-file.');
  } finally {
    await Promise.all([probe.close(), facts.close()]);
  }
}

/** Warns if a client's requirement would exclude a model because its precision or context is not known. */
function checkModels(url: string, models: readonly ServedModel[]): CheckResult {
  const found = `${url} serves ${models.map(describeModel).join(', ') || 'nothing yet'}`;
  const unknown = models.filter(({ quantization, context_length: context }) => !quantization || !context);
  if (unknown.length === 0) return checkPassed('engine', found);
  return checkWarning(
    'engine',
    found,
    `The precision or the context of ${unknown.map(({ id }) => id).join(', ')} is not known, so requests that require one are not sent here. Add them: --fact quantization=bf16 --fact context=32768.`,
  );
}

export function checkState(env: Env): CheckResult {
  try {
    // Creates and removes the directory. Its permissions alone would not reveal a full disk, or that another user owns
    // an existing directory.
    const state = new StateDir(env);
    state.remove();
    return checkPassed('state', `would be stored below ${dirname(state.path)}`);
  } catch (error) {
    const why = errorText(error);
    return checkFailed('state', why, 'Set TMPDIR to a directory that belongs to you and has free space.');
  }
}

/** Checks what functions need: Python, and the sandbox. */
export async function checkFunctions(
  { limits, sandbox }: FunctionsConfig,
  env: Env,
  run: RunTool,
): Promise<CheckResult[]> {
  const interpreter = await findInterpreter(limits.python, undefined, run);
  const python =
    typeof interpreter === 'string'
      ? checkFailed('functions', `Python: ${interpreter}`, 'Install Python, or name it with --functions-python.')
      : checkPassed('functions', `Python ${interpreter.version} at ${interpreter.executable}`);
  if (sandbox === 'off')
    return [
      python,
      checkWarning('sandbox', 'off: functions have all rights of this user', 'Remove --functions-sandbox off.'),
    ];
  const fault = await sandboxFault(run, env.TMPDIR ?? tmpdir()).catch(errorText);
  if (fault === undefined) return [python, checkPassed('sandbox', 'the kernel allows it')];
  const check = sandbox === 'required' ? checkFailed : checkWarning;
  const fix =
    'Install util-linux, and let users create namespaces (sysctl user.max_user_namespaces, and kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu). In a container, allow an unmasked /proc.';
  return [python, check('sandbox', `functions have all rights of this user: ${fault}`, fix)];
}

/** Every command of `otela-agent`, in the order of its help. */
import { EXIT_DONE, EXIT_USAGE, type Program } from '../../shared/command-line/index.ts';
import { EXIT_ENGINE, EXIT_REFUSED, EXIT_SIGNALLED } from '../config/exit.ts';
import { AGENT_VERSION } from '../host/agent-version.ts';
import { CONFIG } from './config.ts';
import type { Context } from './context.ts';
import { DOCTOR } from './doctor/doctor.ts';
import { DRAIN } from './drain.ts';
import { LOGS } from './logs.ts';
import { METRICS } from './metrics.ts';
import { MODELS } from './models.ts';
import { SBATCH } from './sbatch.ts';
import { START } from './start.ts';
import { STATUS } from './status.ts';
import { VOUCH } from './vouch.ts';
import { WEIGHTS } from './weights.ts';

export const PROGRAM: Program<Context> = {
  name: 'otela-agent',
  version: AGENT_VERSION,
  about: `otela-agent serves a model engine on this machine to OpenTela gateways. It needs outbound 443 only.

  otela-agent start --gateway https://gw.example.org --token-file ~/.otela-token -- vllm serve Qwen/Qwen3-8B

Every command but start takes --json.`,
  exitCodes: `Exit codes: ${EXIT_DONE} done, ${EXIT_USAGE} wrong use or configuration, ${EXIT_REFUSED} refused by the gateway, ${EXIT_ENGINE} engine failed, ${EXIT_SIGNALLED} ended by a signal after draining.`,
  commands: {
    start: START,
    status: STATUS,
    models: MODELS,
    logs: LOGS,
    metrics: METRICS,
    drain: DRAIN,
    doctor: DOCTOR,
    sbatch: SBATCH,
    config: CONFIG,
    vouch: VOUCH,
    weights: WEIGHTS,
  },
};

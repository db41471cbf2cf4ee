/** All commands of `otela-agent`, in the order of the help. */
import { EXIT_DONE, EXIT_USAGE, type Program } from '../../shared/command-line/index.ts';
import { EXIT_ENGINE, EXIT_REFUSED, EXIT_SIGNALLED } from '../config/exit-codes.ts';
import { AGENT_VERSION } from '../host/agent-version.ts';
import type { CommandContext } from './command-context.ts';
import { CONFIG_COMMAND } from './config.ts';
import { AGENT_DOCTOR_COMMAND } from './doctor/doctor.ts';
import { DRAIN_COMMAND } from './drain.ts';
import { AGENT_LOGS_COMMAND } from './logs.ts';
import { METRICS_COMMAND } from './metrics.ts';
import { MODELS_COMMAND } from './models.ts';
import { RELAY_COMMAND } from './relay.ts';
import { SBATCH_COMMAND } from './sbatch.ts';
import { SERVICE_COMMAND } from './service.ts';
import { START_COMMAND } from './start.ts';
import { STATUS_COMMAND } from './status.ts';
import { UPDATE_COMMAND } from './update.ts';
import { VOUCH_COMMAND } from './vouch-keys.ts';
import { WEIGHTS_COMMAND } from './weights.ts';

export const AGENT_PROGRAM: Program<CommandContext> = {
  name: 'otela-agent',
  version: AGENT_VERSION,
  about: `otela-agent connects a model engine on this machine to OpenTela gateways. It needs only outbound port 443.

  otela-agent start --gateway https://gw.example.org --token-file ~/.otela-token -- vllm serve Qwen/Qwen3-8B

Every command except start accepts --json.`,
  exitCodes: `Exit codes: ${EXIT_DONE} done, ${EXIT_USAGE} wrong usage or configuration, ${EXIT_REFUSED} refused by the gateway, ${EXIT_ENGINE} engine failed, ${EXIT_SIGNALLED} ended by a signal after draining.`,
  commands: {
    start: START_COMMAND,
    status: STATUS_COMMAND,
    models: MODELS_COMMAND,
    logs: AGENT_LOGS_COMMAND,
    metrics: METRICS_COMMAND,
    drain: DRAIN_COMMAND,
    doctor: AGENT_DOCTOR_COMMAND,
    sbatch: SBATCH_COMMAND,
    service: SERVICE_COMMAND,
    update: UPDATE_COMMAND,
    relay: RELAY_COMMAND,
    config: CONFIG_COMMAND,
    vouch: VOUCH_COMMAND,
    weights: WEIGHTS_COMMAND,
  },
};

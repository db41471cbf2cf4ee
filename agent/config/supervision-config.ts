/** How the agent watches its engine. */
import { fatalPatterns } from '../engine/fatal-output-patterns.ts';
import { listSetting, sourcedDuration, switchSetting, valueSetting } from './setting.ts';
import { toUsageError } from './to-usage-error.ts';

export const SPAN_SETTINGS = {
  spanNodes: switchSetting({
    flag: 'span-nodes',
    env: 'OTELA_SPAN_NODES',
    help: 'one engine spans all nodes of the job: rank 0 registers it, the other ranks only watch their part',
    otherwise: 'from --nnodes in the command',
  }),
};

export const SUPERVISION_SETTINGS = {
  /** Patterns of output lines that mean that the engine is broken and that end this node. */
  fatal: listSetting({
    flag: 'fatal-pattern',
    env: 'OTELA_FATAL_PATTERN',
    value: 'REGEX',
    help: "if a line of the engine's output matches, the agent ends the engine and exits; repeat; none: drop earlier and built-in patterns",
    otherwise: 'CUDA and NCCL errors',
    // Line breaks separate patterns, because a pattern may contain commas.
    separator: '\n',
    parse: (texts) => toUsageError(() => fatalPatterns(texts)),
  }),
  /** How long the engine may be silent before the agent asks it for a token. Longer than most prefills take. */
  probeAfterMs: valueSetting({
    flag: 'engine-probe-after',
    env: 'OTELA_ENGINE_PROBE_AFTER',
    value: 'DURATION',
    help: 'if requests wait and the engine that this agent started has sent nothing for this long, the agent requests one token; 0: never',
    default: '2m',
    parse: sourcedDuration,
  }),
  /**
   * How long the engine may take for that token. The defaults of this setting and of `probeAfterMs` add up to ten
   * minutes, which is less than the first-byte timeout of gateways, and more than the prefill of a million tokens
   * takes.
   */
  probeTimeoutMs: valueSetting({
    flag: 'engine-probe-timeout',
    env: 'OTELA_ENGINE_PROBE_TIMEOUT',
    value: 'DURATION',
    help: 'restart the engine if it sends nothing for this long after the request of --engine-probe-after; must be longer than any prefill',
    default: '8m',
    parse: sourcedDuration,
  }),
};

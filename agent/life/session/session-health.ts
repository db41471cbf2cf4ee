/** Applies the engine's health to the session: its models, its state, and its end when the engine is gone. */

import type { ServedModel, SessionState } from '../../../shared/lattice/node-record.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import type { StartConfig } from '../../config/start-config.ts';
import type { ModelFact } from '../../engine/declared-model-facts.ts';
import { applyFacts, commandFacts } from '../../engine/declared-model-facts.ts';
import type { EngineHealth } from '../../engine/engine-health.ts';
import { announcedModels } from '../../engine/models-in-command.ts';
import type { AgentParts } from '../agent-parts.ts';
import type { DeployedEngine } from '../deployed-engine.ts';
import { localNodeFacts } from '../open-request-service.ts';
import type { Deferred } from '../settles-within.ts';

/** Log lines for a change of the engine's health. @param before the state published until now */
function healthChangeText(
  before: SessionState,
  health: EngineHealth,
  models: readonly ServedModel[],
  facts: readonly ModelFact[],
): string[] {
  if (!health.everReady) return [];
  if (before === 'JOIN') {
    const names = models.map(({ id }) => id);
    const idle = new Set(facts.flatMap(({ model }) => (model === undefined || names.includes(model) ? [] : [model])));
    return [
      `serving ${names.join(', ') || 'no model yet'}`,
      ...[...idle].map((model) => `warning: this engine does not serve ${model}, which --fact names`),
    ];
  }
  if (!health.answering) return ['the engine no longer answers; waiting for it'];
  return [`models now: ${modelStates(models)}`];
}

function modelStates(models: readonly ServedModel[]): string {
  return models.map(({ id, state }) => `${id} (${state})`).join(', ') || 'none';
}

interface SessionHealthOptions {
  config: Pick<StartConfig, 'command' | 'facts' | 'span'>;
  parts: AgentParts;
  /** Settled when the agent begins to end. From then on the shutdown reports on the engine. */
  ending: Pick<Deferred<unknown>, 'settled'>;
  /** Undefined if this agent accepts no deployments. */
  deployed(): DeployedEngine | undefined;
  /** Time after which an engine that this agent did not start counts as stopped. Default: ENGINE_GONE_MS. */
  goneMs?: number;
  log(line: string): void;
}

/**
 * An engine that this agent did not start counts as stopped if nothing has listened at its address for this long. A
 * shorter time counts as a restart.
 */
const ENGINE_GONE_MS = 30_000;

export class SessionHealth {
  readonly #options: SessionHealthOptions;
  #goneTimer: NodeJS.Timeout | undefined;
  /** The states that were last seen. */
  #states = '';

  constructor(options: SessionHealthOptions) {
    this.#options = options;
  }

  /** Updates the session and the log. No effect before there is a session. */
  see(health: EngineHealth): void {
    const { config, parts, ending, log } = this.#options;
    const { sessions } = parts;
    // The other ranks of a multi-machine engine serve no model themselves.
    if (!sessions || ending.settled || config.span.role === 'supervise') return;
    const before = sessions.state;
    parts.models?.see(health);
    const described = this.#described(this.#modelsOf(health));
    const models = parts.models?.describe(described) ?? described;
    sessions.change({ models, ...(health.everReady ? { state: 'SERVING' as const } : {}) });
    if (sessions.current === undefined) parts.requests?.unadmitted(localNodeFacts(sessions));
    const states = `${health.answering} ${modelStates(models)}`;
    // A change of other facts, such as the size of the KV cache, needs no line.
    const isNews = before === 'JOIN' || states !== this.#states;
    this.#states = states;
    if (isNews) for (const line of healthChangeText(before, health, models, config.facts)) log(line);
    this.#watchForGone(health);
  }

  /**
   * If an engine that this agent did not start was stopped, ends the session. The agent then waits without an engine
   * for the next one.
   */
  #watchForGone({ everReady, answering }: EngineHealth): void {
    const { config, parts, ending, deployed, goneMs = ENGINE_GONE_MS } = this.#options;
    clearTimeout(this.#goneTimer);
    if (!everReady || answering || config.command || deployed()) return;
    this.#goneTimer = setTimeout(() => {
      const { engine, sessions } = parts;
      if (ending.settled || !engine || engine.health.answering) return;
      // If the last probe found anything except a closed port, the engine may still run. So wait again for the full
      // time.
      if (engine.health.refusals === 0) return this.#watchForGone(engine.health);
      engine.forget();
      neverRejects(sessions?.becomeIdle('its engine was stopped'));
    }, goneMs);
  }

  /** Until the engine has answered once, its command line decides the models. */
  #modelsOf({ everReady, models }: EngineHealth): readonly ServedModel[] {
    const { config, deployed } = this.#options;
    return everReady || models.length > 0 ? models : announcedModels(deployed()?.command ?? config.command);
  }

  #described(models: readonly ServedModel[]): ServedModel[] {
    const { config, deployed } = this.#options;
    return applyFacts(models, commandFacts(deployed()?.command ?? config.command), config.facts);
  }

  close(): void {
    clearTimeout(this.#goneTimer);
  }
}

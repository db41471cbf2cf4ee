/** What the engine's health means for the session: its models and its state, and that the session ends when the engine is gone. */
import type { ServedModel } from '../../../shared/lattice/node.ts';
import type { StartConfig } from '../../config/start-config.ts';
import { announcedModels } from '../../engine/announced-models.ts';
import { commandFacts, withFacts } from '../../engine/facts.ts';
import type { Health } from '../../engine/health.ts';
import type { DeployedEngine } from '../deployed.ts';
import { unadmitted } from '../requests.ts';
import type { Parts } from '../shutdown.ts';
import type { Once } from '../wait.ts';
import { healthNews } from './health-news.ts';

interface SessionHealthOptions {
  config: Pick<StartConfig, 'command' | 'facts' | 'span'>;
  parts: Parts;
  /** Settled when the agent begins to leave: from then on the shutdown speaks for the engine. */
  ending: Pick<Once<unknown>, 'settled'>;
  /** Undefined where this agent takes no deployments. */
  deployed(): DeployedEngine | undefined;
  /** Default 30 s. */
  goneMs?: number;
  log(line: string): void;
}

/** An engine that is not our child and does not listen for this long was stopped; a shorter absence is a restart. */
const ENGINE_GONE_MS = 30_000;

export class SessionHealth {
  readonly #options: SessionHealthOptions;
  #goneTimer: NodeJS.Timeout | undefined;

  constructor(options: SessionHealthOptions) {
    this.#options = options;
  }

  /** Tells the session and the log; nothing before there is a session. */
  see(health: Health): void {
    const { config, parts, ending, log } = this.#options;
    const { sessions } = parts;
    // Another rank's part of an engine serves no model of its own.
    if (!sessions || ending.settled || config.span.role === 'supervise') return;
    const before = sessions.state;
    const models = this.#described(this.#modelsOf(health));
    sessions.change({ models, ...(health.everReady ? { state: 'SERVING' as const } : {}) });
    if (sessions.current === undefined) parts.requests?.unadmitted(unadmitted(sessions));
    for (const line of healthNews(before, health, models, config.facts)) log(line);
    this.#watchForGone(health);
  }

  /** An engine that is not our child and was stopped: its session ends, this agent waits idle for the next engine. */
  #watchForGone({ everReady, answering }: Health): void {
    const { config, parts, ending, deployed, goneMs = ENGINE_GONE_MS } = this.#options;
    clearTimeout(this.#goneTimer);
    if (!everReady || answering || config.command || deployed()) return;
    this.#goneTimer = setTimeout(() => {
      const { engine, sessions } = parts;
      if (ending.settled || !engine || engine.health.answering) return;
      // Unknown is not gone: a look that found something else than a closed port starts the wait again.
      if (engine.health.refusals === 0) return this.#watchForGone(engine.health);
      engine.forget();
      void sessions?.becomeIdle('its engine was stopped');
    }, goneMs);
  }

  /** An engine that has never answered is believed what its command line says. */
  #modelsOf({ everReady, models }: Health): readonly ServedModel[] {
    const { config, deployed } = this.#options;
    return everReady || models.length > 0 ? models : announcedModels(deployed()?.command ?? config.command);
  }

  #described(models: readonly ServedModel[]): ServedModel[] {
    const { config, deployed } = this.#options;
    return withFacts(models, commandFacts(deployed()?.command ?? config.command), config.facts);
  }

  close(): void {
    clearTimeout(this.#goneTimer);
  }
}

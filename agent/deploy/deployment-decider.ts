/**
 * Decides about signed orders to start or stop a deployment. Checks the template, the parameters and whether the order
 * is possible now. The EngineRunner carries out an accepted order only after the answer was sent, because the session
 * that received the order ends when the deployment begins.
 */

import { DeploymentError } from '../../shared/deployment/deployment-error.ts';
import { type DeploymentProgress, deploymentLabels } from '../../shared/deployment/deployment-labels.ts';
import type { StartRequest, StopRequest } from '../../shared/deployment/deployment-order.ts';
import type { DeploymentAnswer, DeploymentState } from '../../shared/deployment/order-reply.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { bindTemplate, type EngineLaunch, type Templates } from './deployment-templates.ts';

/** Carries out the decisions. */
export interface EngineRunner {
  /** Returns a port on which the engine may listen. @throws DeploymentError cannot_start if there is none */
  port(wanted: number | undefined): Promise<number>;
  /** Ends the idle session, and begins the session of this deployment. */
  begin(deployment: DeploymentState, launch: EngineLaunch): void;
  /** Ends the deployment and its session. Resolves when none of its processes runs. */
  end(why: string, drainMs: number): Promise<void>;
  /** Publishes the current deployment, and the templates that the session would accept. */
  publish(): void;
}

interface DeploymentDeciderOptions {
  templates: Templates;
  keeper: EngineRunner;
  /** Milliseconds since 1970. */
  now(): number;
  log(line: string): void;
}

/** The answer to an order, and the action to take after it was sent. */
export interface OrderOutcome {
  answer: DeploymentAnswer;
  act?: () => void;
}

export const REASON_MAX = 512;

export class DeploymentDecider {
  readonly #options: DeploymentDeciderOptions;
  #deployment: DeploymentState | undefined;
  /** True while an order is being decided. */
  #deciding = false;

  constructor(options: DeploymentDeciderOptions) {
    this.#options = options;
  }

  get current(): DeploymentState | undefined {
    return this.#deployment;
  }

  /** Labels of the current state. */
  get labels(): Record<string, string> {
    return deploymentLabels(this.#news);
  }

  get #news(): DeploymentProgress {
    const one = this.#deployment;
    const failed = one?.reason === undefined ? undefined : { id: one.id, reason: one.reason };
    switch (one?.state) {
      case 'starting':
      case 'running':
        return { kind: 'deployed', id: one.id };
      case 'stopping':
        return { kind: 'ending', failed };
      default:
        return { kind: 'idle', templates: this.#options.templates.names, failed };
    }
  }

  /** Describes the current deployment and the templates that would be accepted. */
  described(): DeploymentAnswer {
    const { offers } = this.#options.templates;
    return { kind: 'described', offers, ...(this.#deployment === undefined ? {} : { deployment: this.#deployment }) };
  }

  /** @throws DeploymentError */
  decide(request: StartRequest | StopRequest): Promise<OrderOutcome> | OrderOutcome {
    return request.action === 'start' ? this.#start(request) : this.#stop(request);
  }

  async #start(request: StartRequest): Promise<OrderOutcome> {
    const { templates, keeper } = this.#options;
    const before = this.#deployment;
    if (this.#deciding) throw new DeploymentError('busy', 'another deployment is starting');
    if (before?.state === 'stopping') throw new DeploymentError('busy', `deployment ${before.id} is still ending here`);
    if (before !== undefined && before.state !== 'failed')
      throw new DeploymentError('busy', `deployment ${before.id} runs here: end it first`);
    const template = templates.find(request.template);
    bindTemplate(template, request.parameters, 1); // check the parameters before a port is searched
    this.#deciding = true;
    try {
      const launch = bindTemplate(template, request.parameters, await keeper.port(template.port));
      const { id, parameters } = request;
      const deployment = this.#set({ id, template: template.name, parameters, state: 'starting' });
      return {
        answer: { kind: 'accepted', deployment },
        act: () => {
          this.#options.log(`deployment ${id}: ${launch.argv.join(' ')}`);
          keeper.begin(deployment, launch);
        },
      };
    } finally {
      this.#deciding = false;
    }
  }

  #stop({ id, drain_ms }: StopRequest): OrderOutcome {
    const one = this.#deployment;
    if (one === undefined || one.state === 'failed')
      throw new DeploymentError('nothing_deployed', 'no deployment runs here');
    if (one.id !== id)
      throw new DeploymentError('nothing_deployed', `deployment ${id} does not run here; ${one.id} does`);
    if (one.state === 'stopping') return { answer: { kind: 'accepted', deployment: one } };
    const deployment = this.#set({ ...one, state: 'stopping' });
    const act = () => neverRejects(this.#end('an order ended it', drain_ms, undefined));
    return { answer: { kind: 'accepted', deployment }, act };
  }

  /** The deployment's engine answers. */
  running(): void {
    if (this.#deployment?.state === 'starting') this.#set({ ...this.#deployment, state: 'running' });
  }

  /** The deployment's engine ended, is broken, or never became ready. */
  async failed(why: string, drainMs: number): Promise<void> {
    const one = this.#deployment;
    if (one === undefined || one.state === 'failed' || one.state === 'stopping') return;
    const reason = why.slice(0, REASON_MAX);
    this.#set({ ...one, state: 'stopping', reason });
    await this.#end(`its engine failed: ${reason}`, drainMs, reason);
  }

  async #end(why: string, drainMs: number, failure: string | undefined): Promise<void> {
    const { keeper, log } = this.#options;
    const one = this.#deployment;
    log(`deployment ${one?.id} is ending: ${why}`);
    await keeper.end(why, drainMs);
    this.#deployment = undefined;
    if (failure !== undefined && one !== undefined) this.#set({ ...one, state: 'failed', reason: failure });
    keeper.publish();
  }

  #set(next: Omit<DeploymentState, 'since'>): DeploymentState {
    this.#deployment = { ...next, since: new Date(this.#options.now()).toISOString() };
    return this.#deployment;
  }
}

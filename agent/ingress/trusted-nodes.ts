import type { RegistryEntry } from '../../shared/lattice/node.ts';
import { candidatesFor } from '../../shared/routing/candidates.ts';
import type { NodeIndex } from '../../shared/routing/nodes.ts';
import type { Trust } from '../../shared/routing/trust.ts';

/** The registry as this agent knows it, its own node included. */
export interface Registry {
  readonly index: NodeIndex;
  /** Changes with everything that is shown. */
  readonly version: number;
}

/** Models whose lists are remembered. */
const MODELS_MAX = 256;

const NONE: ReadonlySet<string> = new Set();

/**
 * Who may be asked for a model, for requests that say nothing about trust themselves: of a thousand nodes each is looked at once
 * per change of the registry, not once per request.
 */
export class TrustedNodes {
  readonly #registry: Registry;
  #trust: Trust | undefined;
  #version = -1;
  readonly #ready = new Map<string, readonly RegistryEntry[]>();

  constructor(registry: Registry) {
    this.#registry = registry;
  }

  get index(): NodeIndex {
    return this.#registry.index;
  }

  ready(model: string, trust: Trust, tried: ReadonlySet<string>): readonly RegistryEntry[] {
    const { index, version } = this.#registry;
    if (tried.size > 0) return candidatesFor(index.model(model), tried, trust);
    if (this.#trust !== trust || this.#version !== version || this.#ready.size > MODELS_MAX) {
      this.#trust = trust;
      this.#version = version;
      this.#ready.clear();
    }
    const known = this.#ready.get(model);
    if (known !== undefined) return known;
    // A copy: the index changes its lists in place.
    const ready = [...candidatesFor(index.model(model), NONE, trust)];
    this.#ready.set(model, ready);
    return ready;
  }
}

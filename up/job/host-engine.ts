/** Completes a wish with what the check found on the host: an engine outside of the PATH, and a place for weights. */
import { cacheSetup, chooseFound } from '../site/found-engines.ts';
import type { LoginNode } from '../site/site.ts';
import { type EngineWish, LLAMA_SERVER } from './job-plan.ts';

interface HostEngine {
  /** The site, with the engine among its programs. */
  site: LoginNode;
  engine: EngineWish;
  /** Lines for the user about the choice. */
  said: readonly string[];
}

export function hostEngine(site: LoginNode, wish: EngineWish): HostEngine {
  const cache = cacheSetup(site);
  const setup = cache === undefined ? wish.setup : [cache, ...wish.setup];
  const said = cache === undefined ? [] : [`weights will be in ${site.scratch}/huggingface`];
  const isGiven = wish.image !== undefined || (wish.command !== undefined && !wish.needsLlama);
  const found = isGiven ? undefined : chooseFound(site, wish.needsLlama ? LLAMA_SERVER : wish.engine);
  if (found === undefined) return { site, engine: { ...wish, setup }, said };
  return {
    site: { ...site, programs: new Set([...site.programs, found.engine]) },
    engine: {
      ...wish,
      engine: wish.needsLlama ? wish.engine : found.engine,
      image: found.image,
      setup: found.setup === undefined ? setup : [...setup, found.setup],
    },
    said: [...said, found.said],
  };
}

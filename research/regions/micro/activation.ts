import type { Cluster } from '../simulator/cluster.ts';
import { ASLEEP, IDLE, type Server } from '../simulator/server.ts';

/** Share of a region's servers that may wake, load or go to sleep in one slot (gradual change), at least one. */
const CHANGE_SHARE = 0.25;
/** A server without work for less than this stays awake, because waking takes longer. */
const IDLE_BEFORE_SLEEP_S = 60;

/**
 * Moves one region towards the wanted numbers of awake servers, `wanted[kind][model]`. First, excess awake servers load
 * another model. Then servers wake, the quickest first, and those that have been idle longest go to sleep.
 */
export function activate(cluster: Cluster, region: number, wanted: readonly (readonly number[])[]): void {
  const servers = cluster.byRegion[region] ?? [];
  let left = Math.max(1, Math.ceil(servers.length * CHANGE_SHARE));
  for (const [kind, byModel] of wanted.entries()) {
    const own = servers.filter((one) => one.kind === kind && one.alive);
    const missing = byModel.map(
      (count, model) => count - own.filter((one) => one.open && one.lastModel === model).length,
    );
    const idle = own.filter((one) => one.phase === IDLE).sort((a, b) => a.idleSinceS - b.idleSinceS);
    const spare = (server: Server) => (missing[server.model] ?? 0) < 0;
    for (let model = 0; model < missing.length; model++) {
      while ((missing[model] ?? 0) > 0 && left > 0) {
        if (!fill(cluster, own, idle, spare, missing, model)) break;
        left--;
      }
    }
    for (const server of idle) {
      if (left <= 0) break;
      if (!spare(server) || server.phase !== IDLE || cluster.nowS - server.idleSinceS < IDLE_BEFORE_SLEEP_S) continue;
      cluster.sleep(server);
      missing[server.model] = (missing[server.model] ?? 0) + 1;
      left--;
    }
  }
}

/** Adds a server for the model: a spare awake server, otherwise the server with the shortest wake time. */
function fill(
  cluster: Cluster,
  own: readonly Server[],
  idle: readonly Server[],
  spare: (server: Server) => boolean,
  missing: number[],
  model: number,
): boolean {
  const reused = idle.find((one) => one.phase === IDLE && spare(one) && cluster.fits(one, model));
  if (reused !== undefined) {
    missing[reused.model] = (missing[reused.model] ?? 0) + 1;
    cluster.preload(reused, model);
  } else {
    const sleeping = own.filter((one) => one.phase === ASLEEP && cluster.fits(one, model));
    const soonest = sleeping.sort((a, b) => a.coldStartS - b.coldStartS)[0];
    if (soonest === undefined) return false;
    cluster.wake(soonest, model);
  }
  missing[model] = (missing[model] ?? 0) - 1;
  return true;
}

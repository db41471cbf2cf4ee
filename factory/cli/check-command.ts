/**
 * `otela-factory check`: checks the file, the token and the state directory. Also asks each cluster whether it would
 * accept the jobs of each model.
 */
import { EXIT_DONE } from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import { placementsOf } from '../config/model-placements.ts';
import { readFactoryConfig } from '../config/read-config.ts';
import type { FactoryConfig } from '../config/schema.ts';
import { readToken } from '../demand/gateway-exchange.ts';
import { errorLine } from '../factory-error.ts';
import type { Launcher } from '../launchers/launcher.ts';
import { makeLauncher } from '../launchers/make-launcher.ts';
import { jobContext, jobContextId } from '../recipes/job-context.ts';
import { scriptBody } from '../recipes/job-script.ts';
import { EXIT_FOUND } from './exit-code.ts';

export async function factoryCheckCommand(path: string, offline: boolean, io: Io): Promise<number> {
  const config = readFactoryConfig(path);
  io.out(
    `${path}: ${config.models.length} models, ${config.recipes.size} recipes, ${config.clusters.length} clusters, revision ${config.revision}`,
  );
  let faults = 0;
  const tell = (ok: boolean, text: string) => {
    if (!ok) faults += 1;
    io.out(`${ok ? 'good' : 'bad '}  ${text}`);
  };
  for (const model of config.models) {
    const places = placementsOf(config, model).map(
      ({ cluster, pool, engine }) =>
        `${cluster.id}/${pool.name} (${engine.gpus} × ${pool.gpu}, ${engine.engine ?? (engine.template === undefined ? 'its own command' : `template ${engine.template}`)})`,
    );
    tell(true, `${model.id}: ${model.min} to ${model.max} jobs on ${places.join(', ')}`);
  }
  if (!offline) {
    try {
      readToken(config.token_file);
      tell(true, `the token ${config.token_file}`);
    } catch (error) {
      tell(false, errorLine(error));
    }
    const launchers = new Map(config.clusters.map((cluster) => [cluster.id, makeLauncher(cluster, config)]));
    await askClusters(config, launchers, tell);
  }
  return faults === 0 ? EXIT_DONE : EXIT_FOUND;
}

async function askClusters(
  config: FactoryConfig,
  launchers: ReadonlyMap<string, Launcher>,
  tell: (ok: boolean, text: string) => void,
): Promise<void> {
  const asked = new Set<string>();
  for (const model of config.models)
    for (const place of placementsOf(config, model)) {
      const { cluster, pool, engine } = place;
      const where = `${cluster.id}/${pool.name} with ${engine.gpus} GPUs`;
      const launcher = launchers.get(cluster.id);
      // Places with equal requirements are checked only once.
      if (launcher === undefined || asked.has(where)) continue;
      asked.add(where);
      const context = jobContext(model.id, place);
      try {
        const body = scriptBody({
          factory: config.factory,
          gateway: config.gateway,
          cluster,
          gpu: pool.gpu,
          context,
          contextId: jobContextId(context),
          jobId: launcher.jobId,
        });
        const { ok, text } = await launcher.check({
          name: `otela-${config.factory}--check`,
          count: 1,
          pool,
          gpus: engine.gpus,
          ...(engine.image === undefined ? {} : { image: engine.image }),
          ...(context.deployment === undefined ? {} : { deployment: context.deployment }),
          body,
          log: '/dev/null',
        });
        tell(ok, `${where}: ${text}`);
      } catch (error) {
        tell(false, `${where}: ${errorLine(error)}`);
      }
    }
}

import { expect, it } from 'vitest';
import { placementsOf } from '../../../factory/config/model-placements.ts';
import { parseConfig } from '../../../factory/config/read-config.ts';
import { jobContext } from '../../../factory/recipes/job-context.ts';
import { scriptBody } from '../../../factory/recipes/job-script.ts';
import { CONFIG } from '../../support/factory/config-text.ts';

const QWEN = 'engine = "sglang"';

/** The script of a job for Qwen with these engine lines. */
function script(lines: string): string {
  const read = parseConfig(CONFIG.replace(QWEN, `${QWEN}\n${lines}`));
  if ('faults' in read) throw new Error(read.faults.map(({ text }) => text).join('\n'));
  const { config } = read;
  const model = config.models.find(({ id }) => id === 'Qwen/Qwen3-8B');
  if (model === undefined) throw new Error('no such model');
  const [place] = placementsOf(config, model);
  if (place === undefined) throw new Error('no place for it');
  const context = jobContext(model.id, place);
  const { factory, gateway } = config;
  return scriptBody({
    factory,
    gateway,
    cluster: place.cluster,
    context,
    contextId: 'c',
    gpu: place.pool.gpu,
    jobId: '$SLURM_JOB_ID',
  });
}

it('a packed environment is pulled by the job’s agent', () => {
  const body = script('packed_environment = "dir:/capstor/env/sglang.tar.zst"');
  expect(body).toContain('--environment dir:/capstor/env/sglang.tar.zst --engine-port');
  expect(body).toContain('python3 -m sglang.launch_server');
});

it('an image that is a source is pulled, and the container runs the copy', () => {
  const body = script('container = "apptainer"\nimage = "s3://images/sglang.sif"');
  expect(body).toContain('--environment s3://images/sglang.sif --engine-port');
  expect(body).toContain('apptainer exec --nv "$@" \'{{environment}}\' python3');
});

it('an image that is none stays where it is', () => {
  const body = script('container = "apptainer"\nimage = "/capstor/sglang.sif"');
  expect(body).not.toContain('--environment');
  expect(body).toContain('apptainer exec --nv "$@" /capstor/sglang.sif python3');
});

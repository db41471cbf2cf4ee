/** The job's script: the factory's recipe with the relay's address. */
import { expect, it } from 'vitest';
import { hostEngine } from '../../up/job/host-engine.ts';
import { chooseEngine, type EngineWish, planJob, submitFailure } from '../../up/job/job-plan.ts';
import type { LoginNode } from '../../up/site/site.ts';

const WISH: EngineWish = {
  engine: undefined,
  command: undefined,
  needsLlama: false,
  arguments: [],
  image: undefined,
  gpus: 2,
  account: 'ml',
  setup: ['module load vllm'],
  sbatchOptions: ['qos=short'],
  isOffline: false,
};
const SITE: LoginNode = {
  platform: 'linux-x64',
  host: 'login1',
  home: '/home/me',
  user: 'me',
  freeKib: undefined,
  programs: new Set(['vllm']),
  partitions: ['gpu'],
  pools: [],
  accounts: ['ml', 'chem'],
  agents: [],
  engines: [],
  scratch: undefined,
  hasCache: false,
};
const POOL = {
  partition: 'gpu',
  isDefault: true,
  gpu: 'a100',
  gpusPerNode: 4,
  openNodes: 1,
  longestMs: undefined,
  address: 'n1',
};

function plan(more: Partial<EngineWish> = {}, model = 'Qwen/Qwen3-8B') {
  const run = { id: 'abcd1234', host: 'cluster', model, started: '2026-11-27T10:00:00Z' };
  return planJob({
    run,
    site: SITE,
    pool: POOL,
    time: '240',
    wish: { ...WISH, ...more },
    agent: ['~/.otela/agent/ffffffffffffffff/otela-agent'],
    gateway: undefined,
  });
}

it('the job has the agent, the relay, the token of the run and the engine of the recipe', () => {
  const { name, pool, gpus, log, body } = plan();
  expect({ name, gpus, log }).toEqual({
    name: 'otela-up-abcd1234',
    gpus: 2,
    log: '/home/me/.otela/run/abcd1234/%j.log',
  });
  expect(pool).toMatchObject({ name: 'gpu', gres: 'a100', account: 'ml', time: '240', options: ['qos=short'] });
  expect(body).toContain('module load vllm');
  expect(body).toContain('export OTELA_GATEWAY=https://otela');
  expect(body).toContain('export OTELA_TOKEN_FILE="$HOME"/.otela/run/abcd1234/token');
  expect(body).toContain('export OTELA_RELAY="$HOME"/.otela/run/abcd1234/relay');
  expect(body).toContain('export OTELA_MESH=off');
  expect(body).toContain('export NODE_EXTRA_CA_CERTS="$HOME"/.otela/run/abcd1234/gateway.pem');
  expect(body).toContain('exec "$HOME"/.otela/agent/ffffffffffffffff/otela-agent start');
  expect(body).toContain('vllm serve Qwen/Qwen3-8B --served-model-name Qwen/Qwen3-8B --tensor-parallel-size 2');
});

it('an own command replaces the recipe, and an image wraps it', () => {
  expect(plan({ command: ['llama-server', '--port', '{{port}}'] }).body).toContain('llama-server --port "$OTELA_PORT"');
  expect(plan({ image: '/scratch/vllm.sif' }).body).toContain('apptainer exec --nv "$@" /scratch/vllm.sif vllm serve');
});

it('a value cannot begin another line of the script', () => {
  expect(() => plan({ account: 'ml\n#SBATCH --x' })).toThrow(/cannot be a job.*account/);
  expect(() => plan({ sbatchOptions: ['a b'] })).toThrow(/cannot be a job/);
  expect(plan({}, "m'; touch /tmp/x; '").body).toContain(`'m'\\''; touch /tmp/x; '\\'''`);
});

it('a host without an engine gets the three ways on', () => {
  const none = { programs: new Set<never>(), host: 'login1' };
  expect(() => chooseEngine(none, WISH)).toThrow(
    /has no vllm, sglang, lmdeploy on its PATH, in its modules or in your environments.\n.*--setup.*--image.*after --/,
  );
  expect(chooseEngine(none, { ...WISH, image: 'x.sif' })).toBe('vllm');
});

it('an engine outside of the PATH is used in the order environment, newest module, image', () => {
  const at = (kind: 'environment' | 'module' | 'image', where: string) => ({
    engine: 'vllm' as const,
    kind,
    at: where,
  });
  const all = [at('environment', '/home/me/venv/bin'), at('module', 'vllm/0.11'), at('image', '/home/me/vllm.sif')];
  const host: LoginNode = { ...SITE, programs: new Set(['apptainer']), engines: all };
  const wish = { ...WISH, setup: [] };
  const first = hostEngine(host, wish);
  expect(first.said).toEqual(['using vllm of the environment /home/me/venv/bin']);
  expect(first.engine.setup.join()).toContain('. /home/me/venv/bin/activate');
  expect(chooseEngine(first.site, first.engine)).toBe('vllm');
  const second = hostEngine({ ...host, engines: all.slice(1) }, wish);
  expect(second.engine.setup).toEqual(['module load vllm/0.11']);
  const third = hostEngine({ ...host, engines: all.slice(2) }, wish);
  expect(third.engine).toMatchObject({ image: '/home/me/vllm.sif', setup: [] });
  expect(hostEngine({ ...host, programs: new Set(), engines: all.slice(2) }, wish).engine).toEqual(wish);
  // A wish of the user is not replaced.
  for (const given of [{ image: 'x.sif' }, { command: ['serve', '{{port}}'] }, { engine: 'sglang' }])
    expect(hostEngine(host, { ...wish, ...given }).engine).toEqual({ ...wish, ...given });
});

it('weights go to the scratch directory unless there is a cache', () => {
  const host = { ...SITE, scratch: "/scratch/o'hara" };
  const wish = { ...WISH, setup: ['module load vllm'] };
  const found = hostEngine(host, wish);
  expect(found.engine.setup).toEqual([`export HF_HOME='/scratch/o'\\''hara/huggingface'`, 'module load vllm']);
  expect(found.said).toEqual(["weights will be in /scratch/o'hara/huggingface"]);
  expect(hostEngine({ ...host, hasCache: true }, wish).engine.setup).toEqual(['module load vllm']);
});

it('a refusal of Slurm names the accounts', () => {
  const said = new Error('Batch job submission failed: Invalid account or account/partition combination specified');
  expect(submitFailure(said, SITE, 'bio').message).toMatch(
    /refuses the account bio[\s\S]*Your accounts are ml, chem: give one with --account/,
  );
});

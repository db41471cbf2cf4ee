/** The Kubernetes launcher at a real API server. No controller runs there, so jobs get no pods. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { parseConfig } from '../../../factory/config/read-config.ts';
import { kubernetesLauncher } from '../../../factory/launchers/kubernetes.ts';
import { LauncherError, type Submission } from '../../../factory/launchers/launcher.ts';
import { CONFIG } from '../../support/factory/config-text.ts';
import { KubernetesCluster, NO_KUBERNETES } from '../../support/kubernetes/cluster.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';

const PREFIX = 'otela-pool--';
const NAME = `${PREFIX}0123456789ab-1`;

let cluster: KubernetesCluster;
beforeAll(async () => {
  if (NO_KUBERNETES === undefined) cluster = await KubernetesCluster.start();
});
afterAll(endAll);

async function launcherIn(namespace: string, tokenText = cluster.token) {
  const read = parseConfig(CONFIG);
  const [site] = 'faults' in read ? [] : read.config.clusters;
  const [pool] = site?.pools ?? [];
  if (site === undefined || pool === undefined) throw new Error('no cluster');
  const token = join(await temporaryDirectory(), 'token');
  await writeFile(token, `${tokenText}\n`, { mode: 0o600 });
  const place = { server: cluster.server, namespace, token_file: token, ca_file: cluster.caFile, secret: 'join-token' };
  const submission: Submission = {
    ...{ name: NAME, count: 1, gpus: 2, body: 'exec otela-agent start\n', log: '/state/%j.log' },
    image: 'example/vllm:1',
    pool: { ...pool, node_selector: { 'nvidia.com/gpu.product': 'NVIDIA-H100-80GB-HBM3' }, time: '04:00:00' },
  };
  return { launcher: kubernetesLauncher({ ...site, launcher: 'kubernetes', ...place }), submission };
}

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'done',
    (error: unknown) => (error instanceof LauncherError ? error.code : String(error)),
  );

it.skipIf(NO_KUBERNETES)('jobs are checked, submitted once, listed and cancelled', async () => {
  const { launcher, submission } = await launcherIn('default');
  expect(await launcher.check(submission)).toMatchObject({ ok: true });
  expect(await launcher.list(PREFIX)).toEqual([]);
  expect(await launcher.submit({ ...submission, count: 2 })).toEqual([`${NAME}-0`, `${NAME}-1`]);
  expect(await codeOf(launcher.submit({ ...submission, count: 2 }))).toBe('refused');
  const waits = { state: 'pending', reason: 'it has no pod yet', name: NAME };
  expect(await launcher.list(PREFIX)).toMatchObject([waits, waits]);
  expect(await launcher.list('otela-other--')).toEqual([]);
  for (let again = 0; again < 2; again++) await launcher.cancel([`${NAME}-0`, `${NAME}-1`]);
  expect(await launcher.list(PREFIX)).toEqual([]);
});

it.skipIf(NO_KUBERNETES)('what the API server refuses is a refusal, with its words', async () => {
  const { launcher, submission } = await launcherIn('default');
  const pool = { ...submission.pool, memory: 'much' };
  expect(await launcher.check({ ...submission, pool })).toMatchObject({
    ok: false,
    text: expect.stringMatching(/quantit/),
  });
  const gone = await launcherIn('gone');
  expect(await gone.launcher.check(gone.submission)).toMatchObject({
    ok: false,
    text: expect.stringContaining('namespaces "gone" not found'),
  });
  const other = await launcherIn('default', 'wrong');
  expect(await codeOf(other.launcher.list(PREFIX))).toBe('unreachable');
  expect(await codeOf(other.launcher.submit(other.submission))).toBe('refused');
});

/** The Helm chart at a real API server: helm installs, changes and removes it, and its pods may run. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import * as z from 'zod';
import { KubernetesCluster, NO_HELM } from '../support/kubernetes/cluster.ts';
import { endAll, temporaryDirectory } from '../support/processes.ts';
import { ROOT } from '../support/where.ts';

const CHART = join(ROOT, 'deploy/helm/opentela');
const KINDS = 'statefulsets,deployments,services,ingresses,networkpolicies,poddisruptionbudgets';
/** Several processes, an Ingress and agents. */
const FULL = {
  replicas: 3,
  database: { secret: 'postgresql' },
  files: 's3://otela/files',
  filesSecret: 'bucket',
  metricsTokenSecret: 'metrics',
  ingress: { host: 'otela.example.org', className: 'nginx', tlsSecret: 'tls' },
  agents: { gateway: 'https://otela.example.org', replicas: 2, gpus: 4 },
};
const listSchema = z.object({
  items: z.array(
    z.looseObject({
      kind: z.string(),
      metadata: z.object({ name: z.string() }),
      spec: z.looseObject({
        replicas: z.number().optional(),
        template: z.object({ spec: z.looseObject({ volumes: z.array(z.unknown()).default([]) }) }).optional(),
        volumeClaimTemplates: z.array(z.object({ metadata: z.object({ name: z.string() }) })).default([]),
      }),
    }),
  ),
});

let cluster: KubernetesCluster;
beforeAll(async () => {
  if (NO_HELM === undefined) cluster = await KubernetesCluster.start();
});
afterAll(endAll);

async function objects(namespace: string) {
  const { out } = await cluster.kubectl('get', KINDS, '--namespace', namespace, '--output', 'json');
  return listSchema.parse(JSON.parse(out)).items;
}

const kindsOf = (items: readonly { kind: string }[]) => items.map(({ kind }) => kind).sort();

async function helm(...args: string[]): Promise<string> {
  const { code, out } = await cluster.helm(...args);
  expect(code, out).toBe(0);
  // Kubernetes warns of fields that it does not know, and of old ones.
  expect(out).not.toMatch(/warning/i);
  return out;
}

/** The answer of the API server to a pod of the chart in a namespace with the standard `restricted`. */
async function admitted(item: Awaited<ReturnType<typeof objects>>[number]): Promise<string> {
  const { template, volumeClaimTemplates } = item.spec;
  if (template === undefined) throw new Error(`${item.kind} has no pods`);
  const claims = volumeClaimTemplates.map(({ metadata: { name } }) => ({ name, emptyDir: {} }));
  const spec = { ...template.spec, volumes: [...template.spec.volumes, ...claims] };
  const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'pod' }, spec };
  const file = join(await temporaryDirectory(), 'pod.json');
  await writeFile(file, JSON.stringify(pod));
  return (await cluster.kubectl('create', '--dry-run=server', '--namespace', 'restricted', '-f', file)).out;
}

it.skipIf(NO_HELM)('helm installs, changes and removes a gateway', async () => {
  const release = ['lab', CHART, '--namespace', 'one'];
  await helm('install', ...release, '--create-namespace');
  expect(kindsOf(await objects('one'))).toEqual(['NetworkPolicy', 'Service', 'StatefulSet']);
  await helm('upgrade', ...release, '--set', 'ingress.host=otela.example.org', '--set', 'agents.replicas=2');
  const changed = await objects('one');
  expect(kindsOf(changed)).toContain('Ingress');
  expect(changed.find(({ kind }) => kind === 'Deployment')?.spec.replicas).toBe(2);
  const refused = await cluster.helm('upgrade', ...release, '--set', 'replicas=2');
  expect(refused).toMatchObject({ code: 1, out: expect.stringContaining('replicas') });
  await helm('uninstall', 'lab', '--namespace', 'one');
  expect(await objects('one')).toEqual([]);
});

it.skipIf(NO_HELM)('with all values, each pod is admitted by the pod security standard restricted', async () => {
  await cluster.kubectl('create', 'namespace', 'restricted');
  const label = 'pod-security.kubernetes.io/enforce=restricted';
  await cluster.kubectl('label', 'namespace', 'restricted', label);
  const values = join(await temporaryDirectory(), 'values.json');
  await writeFile(values, JSON.stringify(FULL));
  await helm('install', 'lab', CHART, '--namespace', 'all', '--create-namespace', '--values', values);
  const made = await objects('all');
  expect(kindsOf(made)).toEqual([
    'Deployment',
    'Ingress',
    'NetworkPolicy',
    'NetworkPolicy',
    'PodDisruptionBudget',
    'Service',
    'StatefulSet',
  ]);
  for (const item of made.filter(({ spec }) => spec.template !== undefined))
    expect(await admitted(item)).toMatch(/created \(server dry run\)/);
});

/** The Helm chart: each rendered object is valid by Kubernetes' own schema, and invalid values are refused. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Deployment } from 'kubernetes-models/apps/v1/Deployment';
import { StatefulSet } from 'kubernetes-models/apps/v1/StatefulSet';
import { Ingress } from 'kubernetes-models/networking.k8s.io/v1/Ingress';
import { NetworkPolicy } from 'kubernetes-models/networking.k8s.io/v1/NetworkPolicy';
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1/PodDisruptionBudget';
import { Service } from 'kubernetes-models/v1/Service';
import { afterAll, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import * as z from 'zod';
import { which } from '../support/abilities.ts';
import { endAll, temporaryDirectory } from '../support/processes.ts';
import { ROOT } from '../support/where.ts';

afterAll(endAll);

const CHART = join(ROOT, 'deploy/helm/opentela');
const KINDS = { Deployment, StatefulSet, Service, Ingress, NetworkPolicy, PodDisruptionBudget } as const;
const objectSchema = z.looseObject({
  kind: z.enum(['Deployment', 'StatefulSet', 'Service', 'Ingress', 'NetworkPolicy', 'PodDisruptionBudget']),
});
const valuesSchema = z.looseObject({ agents: z.looseObject({}), ingress: z.looseObject({}) });
const DEFAULTS = valuesSchema.parse(parse(readFileSync(join(CHART, 'values.yaml'), 'utf8')));
/** Values with which the chart renders every optional object. */
const FULL = {
  ...DEFAULTS,
  replicas: 3,
  database: { secret: 'postgresql' },
  files: 's3://otela/files',
  filesSecret: 'bucket',
  env: { REQUEST_LOG: 'all' },
  metricsTokenSecret: 'metrics',
  storage: { size: '1Gi', className: 'fast' },
  ingress: { host: 'otela.example.org', className: 'nginx', tlsSecret: 'tls' },
  agents: { ...DEFAULTS.agents, gateway: 'https://otela.example.org', replicas: 2, gpus: 4 },
};

type Render = (file: string) => string;
const RENDERERS: Record<string, { program: string; render: Render }> = {
  "Go's templates": {
    program: 'go',
    render: (file) =>
      execFileSync('go', ['run', join(ROOT, 'test/support/helm-template/main.go'), CHART, 'lab', file], {
        encoding: 'utf8',
        env: { ...process.env, GO111MODULE: 'off' },
      }),
  },
  helm: {
    program: 'helm',
    render: (file) => execFileSync('helm', ['template', 'lab', CHART, '-f', file], { encoding: 'utf8' }),
  },
};

async function objects(render: Render, values: object) {
  const file = join(await temporaryDirectory(), 'values.json');
  await writeFile(file, JSON.stringify(values));
  return parseAllDocuments(render(file))
    .map((document): unknown => document.toJS())
    .filter((value) => value !== null)
    .map((value) => {
      const object = objectSchema.parse(value);
      new KINDS[object.kind](object as never).validate();
      return object;
    });
}

it.for(Object.entries(RENDERERS))(
  'rendered by %s, all objects are valid',
  async ([, { program, render }], { skip }) => {
    if (which(program) === undefined) return skip(`not installed: ${program}`);
    // Helm sorts objects in the order of installation.
    const kinds = (await objects(render, DEFAULTS)).map(({ kind }) => kind).sort();
    expect(kinds).toEqual(['NetworkPolicy', 'Service', 'StatefulSet']);
    const full = await objects(render, FULL);
    expect(full.map(({ kind }) => kind).sort()).toEqual([
      'Deployment',
      'Ingress',
      'NetworkPolicy',
      'NetworkPolicy',
      'PodDisruptionBudget',
      'Service',
      'StatefulSet',
    ]);
    const text = JSON.stringify(full);
    for (const part of [
      '"readinessProbe":{"httpGet":{"path":"/readyz"',
      '"livenessProbe":{"httpGet":{"path":"/healthz"',
      '"runAsNonRoot":true',
      '"seccompProfile":{"type":"RuntimeDefault"}',
      '"ingress":[]',
      '{"name":"OTELA_GATEWAY","value":"https://otela.example.org"}',
      '"allowPrivilegeEscalation":false',
      '"storageClassName":"fast"',
      '"replicas":3',
      '"--database=$(OTELA_DATABASE)","--cluster-key=/cluster/cluster-key","--cluster-address=$(POD_IP):8790"',
      '{"name":"PGPASSWORD","valueFrom":{"secretKeyRef":{"name":"postgresql","key":"password"}}}',
      '"envFrom":[{"secretRef":{"name":"bucket"}}]',
      '"podAntiAffinity"',
      '"from":[{"podSelector":{"matchLabels":{"app":"lab"}}}],"ports":[{"port":"cluster","protocol":"TCP"}]',
      '"maxUnavailable":1',
      '"nvidia.com/gpu":"4"',
      '{"name":"REQUEST_LOG","value":"all"}',
    ])
      expect(text).toContain(part);
  },
);

it('values that the chart cannot take are refused by its schema, its own are not', () => {
  const schema = z.fromJSONSchema(JSON.parse(readFileSync(join(CHART, 'values.schema.json'), 'utf8')));
  for (const values of [DEFAULTS, FULL]) expect(schema.safeParse(values).error).toBeUndefined();
  // One process writes to a volume, so several need a database and storage that all of them reach.
  const { database, files } = FULL;
  for (const values of [{ replicas: 2 }, { replicas: 2, database }, { replicas: 2, files }, { database }])
    expect(schema.safeParse({ ...DEFAULTS, ...values }).success).toBe(false);
  expect(schema.safeParse({ ...DEFAULTS, storage: { size: 'much' } }).success).toBe(false);
});

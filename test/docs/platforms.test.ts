/**
 * The files for Kubernetes and Compose are valid: by Kubernetes' own schema, and by a strict schema of the used part of
 * Compose. Wrangler's environments agree.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Deployment } from 'kubernetes-models/apps/v1/Deployment';
import { StatefulSet } from 'kubernetes-models/apps/v1/StatefulSet';
import { Service } from 'kubernetes-models/v1/Service';
import { parse as parseToml } from 'smol-toml';
import { expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import * as z from 'zod';
import { SERVE_FLAGS, serveOptions } from '../../gateway/hosts/node/serve/serve-command.ts';
import { parseLine } from '../../shared/command-line/index.ts';
import { ROOT } from '../support/where.ts';

const objectSchema = z.looseObject({ kind: z.string(), metadata: z.looseObject({ name: z.string() }) });
const KINDS = { Deployment, StatefulSet, Service } as const;

/** Objects by kind; each is valid by Kubernetes' schema. */
function objectsOf(text: string) {
  return parseAllDocuments(text)
    .map((document): unknown => document.toJS())
    .filter((value) => value !== null)
    .map((value) => {
      const object = objectSchema.parse(value);
      const found = Object.entries(KINDS).find(([kind]) => kind === object.kind);
      if (found === undefined) throw new Error(`no schema for ${object.kind}`);
      const [, Kind] = found;
      new Kind(object as never).validate();
      return object;
    });
}

it('the agents’ Deployment in examples/ is valid, and a wrong one is not', () => {
  const text = readFileSync(join(ROOT, 'examples/kubernetes/deployment.yaml'), 'utf8');
  expect(objectsOf(text).map(({ kind }) => kind)).toEqual(['Deployment']);
  expect(() => objectsOf(text.replace('replicas: 1', 'replicas: many'))).toThrow();
});

it('the gateway’s manifest is valid, has a volume and probes of what the gateway answers, and runs without rights', () => {
  const objects = objectsOf(readFileSync(join(ROOT, 'deploy/gateway/kubernetes.yaml'), 'utf8'));
  expect(objects.map(({ kind }) => kind)).toEqual(['Service', 'StatefulSet']);
  const text = JSON.stringify(objects);
  for (const part of [
    '/readyz',
    '/healthz',
    'volumeClaimTemplates',
    '"runAsNonRoot":true',
    '"readOnlyRootFilesystem":true',
  ])
    expect(text).toContain(part);
});

const serviceSchema = z.strictObject({
  image: z.string(),
  build: z.strictObject({ context: z.string(), dockerfile: z.string() }).optional(),
  profiles: z.array(z.string()).optional(),
  restart: z.enum(['no', 'always', 'on-failure', 'unless-stopped']),
  ports: z.array(z.string().regex(/^127\.0\.0\.1:\d+:\d+$/)).optional(),
  volumes: z.array(z.string()).optional(),
  environment: z.record(z.string(), z.string()).optional(),
  command: z.array(z.string()).optional(),
  depends_on: z.record(z.string(), z.strictObject({ condition: z.literal('service_healthy') })).optional(),
  secrets: z.array(z.string()).optional(),
  stop_grace_period: z.string().regex(/^\d+s$/),
  read_only: z.literal(true).optional(),
  tmpfs: z.array(z.string()).optional(),
  cap_drop: z.array(z.literal('ALL')).optional(),
  security_opt: z.array(z.string()).optional(),
  shm_size: z.string().optional(),
  deploy: z.looseObject({}).optional(),
  healthcheck: z.looseObject({ test: z.array(z.string()) }).optional(),
});
const composeSchema = z.strictObject({
  'x-gateway': z.looseObject({}).optional(),
  services: z.record(z.string(), serviceSchema),
  volumes: z.record(z.string(), z.strictObject({})),
  secrets: z.record(z.string(), z.strictObject({ file: z.string() })).default({}),
});

const COMPOSE = ['compose.yaml', 'cluster.compose.yaml', 'open-webui.compose.yaml', 'librechat.compose.yaml'];

function readCompose(file: string): z.infer<typeof composeSchema> {
  const text = readFileSync(join(ROOT, 'deploy/gateway', file), 'utf8');
  return composeSchema.parse(parse(text, { merge: true }));
}

it.for(COMPOSE)('%s has what its parts name, and its port is on this machine alone', (file) => {
  const { services, volumes, secrets } = readCompose(file);
  for (const service of Object.values(services)) {
    for (const [source = ''] of (service.volumes ?? []).map((mount) => mount.split(':')))
      if (source.startsWith('.')) expect(existsSync(join(ROOT, 'deploy/gateway', source))).toBe(true);
      else expect(Object.keys(volumes)).toContain(source);
    for (const secret of service.secrets ?? []) expect(Object.keys(secrets)).toContain(secret);
    for (const other of Object.keys(service.depends_on ?? {})) expect(Object.keys(services)).toContain(other);
    if (service.build !== undefined)
      expect(existsSync(join(ROOT, 'deploy/gateway', service.build.context, service.build.dockerfile))).toBe(true);
  }
});

it('each gateway of the cluster has its own directory and address, and the balancer knows all of them', () => {
  const { services } = readCompose('cluster.compose.yaml');
  const gateways = Object.entries(services).filter(([, { command }]) => command?.[0] === 'serve');
  const balancer = readFileSync(join(ROOT, 'deploy/gateway/haproxy.cfg'), 'utf8');
  const known = [...balancer.matchAll(/^ {2}server (\S+) (\S+):8787$/gm)].map(([, , host]) => host);
  expect(known).toEqual(gateways.map(([name]) => name));
  expect(new Set(gateways.map(([, { volumes }]) => volumes?.[0])).size).toBe(3);
  for (const [name, { command = [] }] of gateways) {
    // The command is one that `serve` accepts.
    const flags = command.slice(1);
    const { values } = parseLine(flags, SERVE_FLAGS);
    expect(serveOptions(values).cluster).toEqual({
      keyFile: '/run/secrets/cluster-key',
      host: name,
      port: 8790,
      url: undefined,
    });
  }
});

it('the image takes what the build makes, runs as another user than root, and says whether it is well', () => {
  const text = readFileSync(join(ROOT, 'deploy/gateway/Dockerfile'), 'utf8');
  for (const line of ['USER node', 'VOLUME /data', 'HEALTHCHECK', 'STOPSIGNAL SIGTERM']) expect(text).toContain(line);
  for (const [, from = ''] of text.matchAll(/^COPY (?:--\S+ )*(dist\/\S+)/gm))
    expect(readFileSync(join(ROOT, 'build.ts'), 'utf8')).toContain(from.slice('dist/'.length).split('.')[0]);
});

const environmentSchema = z.looseObject({ vars: z.record(z.string(), z.string()).default({}) });
const wranglerSchema = environmentSchema.extend({ env: z.object({ production: environmentSchema }) });

it('wrangler’s production environment asks for signed agents and marked providers, and differs in nothing else', () => {
  const { env, vars, ...clone } = wranglerSchema.parse(parseToml(readFileSync(join(ROOT, 'wrangler.toml'), 'utf8')));
  const { vars: productionVars, ...production } = env.production;
  expect(productionVars).toEqual({ ...vars, REQUIRE_SIGNED_AGENT: 'on', RELEASE_KEYS: '', DEFAULT_TRUST: 'marked' });
  // Wrangler's environments inherit everything but bindings, variables and limits.
  const { durable_objects, r2_buckets, d1_databases, assets, limits, name } = clone;
  expect(production).toEqual({ durable_objects, r2_buckets, d1_databases, assets, limits, name });
});

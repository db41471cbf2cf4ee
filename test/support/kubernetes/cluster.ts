/**
 * A real Kubernetes API server with etcd, and a node that runs pods as processes of this machine: `node/main.go`. Needs
 * root. `test/support/kubernetes/build` builds the programs with Go.
 */
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { POD_HOME } from '../../../up/host/kubernetes/pod-manifest.ts';
import { which } from '../abilities.ts';
import { atEnd, eventually, freePorts, Managed, temporaryDirectory } from '../processes.ts';
import { ROOT } from '../where.ts';

const BUILT = process.env.OTELA_TEST_KUBERNETES ?? join(ROOT, '.ci/bin');
const PROGRAMS = ['kube-apiserver', 'kubectl', 'kubernetes-test-node', 'etcd'] as const;

/** Path of a program; undefined: it is not built. */
function program(name: (typeof PROGRAMS)[number] | 'helm'): string | undefined {
  const built = join(BUILT, name);
  return existsSync(built) ? built : which(name);
}

const absent = PROGRAMS.filter((name) => program(name) === undefined);
/** Why there is no cluster here; undefined if there can be one. */
export const NO_KUBERNETES =
  absent.length > 0
    ? `not built: ${absent.join(', ')}; test/support/kubernetes/build builds them`
    : process.getuid?.() === 0
      ? undefined
      : 'needs root';

/** Why helm cannot be used with a cluster here. */
export const NO_HELM = NO_KUBERNETES ?? (program('helm') === undefined ? 'helm is not installed' : undefined);

const STARTED_MS = 60_000;

export class KubernetesCluster {
  /** The user's configuration of kubectl. */
  readonly kubeconfig: string;
  /** URL of the API server, its certificate, and the token of a user with all rights. */
  server = '';
  readonly caFile: string;
  token = '';
  /** Directory with kubectl. */
  readonly bin = BUILT;
  readonly #directory: string;

  private constructor(directory: string) {
    this.#directory = directory;
    this.kubeconfig = join(directory, 'kubeconfig');
    this.caFile = join(directory, 'certificates/apiserver.crt');
  }

  /** Starts a cluster with one node; `endAll` ends it. */
  static async start(gpus = 2): Promise<KubernetesCluster> {
    const directory = await temporaryDirectory('otela-kubernetes');
    const cluster = new KubernetesCluster(directory);
    const first = await freePorts(3);
    await cluster.#serve(first);
    await cluster.#node(gpus);
    return cluster;
  }

  async #serve(first: number): Promise<void> {
    const [etcd, peers, port] = [first, first + 1, first + 2].map((one) => `127.0.0.1:${one}`) as [
      string,
      string,
      string,
    ];
    const file = (name: string) => join(this.#directory, name);
    const urls = [`--listen-client-urls=http://${etcd}`, `--advertise-client-urls=http://${etcd}`];
    const peer = [`--listen-peer-urls=http://${peers}`, `--initial-advertise-peer-urls=http://${peers}`];
    const store = [`--data-dir=${file('etcd')}`, `--initial-cluster=default=http://${peers}`, '--unsafe-no-fsync'];
    new Managed([program('etcd') ?? '', ...store, ...urls, ...peer], { label: 'etcd' });
    const [token, ada] = [randomBytes(16).toString('hex'), randomBytes(16).toString('hex')];
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    await writeFile(file('accounts.pem'), String(privateKey.export({ type: 'pkcs8', format: 'pem' })), { mode: 0o600 });
    const tokens = `${token},admin,admin,system:masters\n${ada},ada,ada\n`;
    await writeFile(file('tokens.csv'), tokens, { mode: 0o600 });
    const api = new Managed(
      [
        program('kube-apiserver') ?? '',
        `--etcd-servers=http://${etcd}`,
        '--bind-address=127.0.0.1',
        `--secure-port=${port.split(':')[1]}`,
        `--cert-dir=${file('certificates')}`,
        `--token-auth-file=${file('tokens.csv')}`,
        '--authorization-mode=RBAC',
        '--service-cluster-ip-range=10.96.0.0/24',
        '--service-account-issuer=https://kubernetes.default.svc',
        `--service-account-key-file=${file('accounts.pem')}`,
        `--service-account-signing-key-file=${file('accounts.pem')}`,
        // Without a controller manager nothing makes the default account of a namespace.
        '--disable-admission-plugins=ServiceAccount',
      ],
      { label: 'kube-apiserver' },
    );
    // It waits for a minute for its requests to end.
    atEnd(() => api.dispose(0));
    this.server = `https://${port}`;
    this.token = token;
    await writeFile(this.kubeconfig, JSON.stringify(config(this.server, token, ada)), { mode: 0o600 });
    await eventually('the API server', STARTED_MS, async () => {
      if (!api.running) throw api.failure('ended');
      return (await this.kubectl('get', '--raw', '/readyz')).out.includes('ok') ? true : undefined;
    });
  }

  async #node(gpus: number): Promise<void> {
    const home = join(this.#directory, 'homes');
    await mkdir(home);
    // The mount point of homes exists in each container's namespace, because they share this machine's root.
    if (!existsSync(POD_HOME)) {
      await mkdir(POD_HOME);
      atEnd(() => rmdir(POD_HOME).catch(() => undefined));
    }
    const flags = ['--kubeconfig', this.kubeconfig, '--directory', home, '--gpus', String(gpus)];
    const node = new Managed([program('kubernetes-test-node') ?? '', ...flags], {
      label: 'node',
      env: { PATH: process.env.PATH ?? '' },
    });
    await node.line(/node ready/, STARTED_MS);
  }

  /** Makes a namespace with a limit. The status of the limit is written here, because no controller manager runs. */
  async limited(namespace: string, resource: string, most: string): Promise<void> {
    const inside = ['--namespace', namespace];
    await this.kubectl('create', 'namespace', namespace);
    await this.kubectl('create', 'quota', 'limit', ...inside, `--hard=${resource}=${most}`);
    const status = JSON.stringify({ status: { hard: { [resource]: most }, used: { [resource]: '0' } } });
    await this.kubectl('patch', 'quota', 'limit', ...inside, '--subresource=status', '--type=merge', '-p', status);
  }

  /** Gives the user of the context `ada` the rights that the documentation names, in the namespace `ml` with the pod security standard `baseline`. */
  async grantAda(): Promise<void> {
    await this.kubectl('create', 'namespace', 'ml');
    await this.kubectl('label', 'namespace', 'ml', 'pod-security.kubernetes.io/enforce=baseline');
    const role = ['create', 'role', 'up', '--namespace', 'ml'];
    await this.kubectl(...role, '--verb=get,create,delete', '--resource=pods');
    const exec = [
      { op: 'add', path: '/rules/-', value: { apiGroups: [''], resources: ['pods/exec'], verbs: ['create'] } },
    ];
    await this.kubectl('patch', 'role', 'up', '--namespace', 'ml', '--type=json', '-p', JSON.stringify(exec));
    await this.kubectl('create', 'rolebinding', 'up', '--namespace', 'ml', '--role=up', '--user=ada');
  }

  /** Runs kubectl to its end. */
  kubectl(...args: string[]): Promise<{ code: number | null; out: string }> {
    return this.#ran('kubectl', args);
  }

  /** Runs helm to its end. */
  helm(...args: string[]): Promise<{ code: number | null; out: string }> {
    return this.#ran('helm', args);
  }

  async #ran(name: 'kubectl' | 'helm', args: string[]): Promise<{ code: number | null; out: string }> {
    const env = { KUBECONFIG: this.kubeconfig, HOME: this.#directory };
    const running = new Managed([program(name) ?? '', ...args], { label: `${name} ${args[0]}`, env });
    const { code } = await running.end(60_000);
    return { code, out: running.output };
  }
}

/** @param server URL of the API server. Its certificate is self-signed. */
function config(server: string, token: string, ada: string): object {
  return {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'lab',
    clusters: [{ name: 'lab', cluster: { server, 'insecure-skip-tls-verify': true } }],
    users: [
      { name: 'admin', user: { token } },
      { name: 'ada', user: { token: ada } },
    ],
    contexts: [
      { name: 'lab', context: { cluster: 'lab', user: 'admin', namespace: 'default' } },
      { name: 'ada', context: { cluster: 'lab', user: 'ada', namespace: 'ml' } },
    ],
  };
}

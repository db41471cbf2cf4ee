/**
 * The short form, which `npm test` runs, and the long one, which `npm run test:all` adds. Files of UNITS are short
 * unless LONG names them; all others are long unless SHORT names them. So a new unit test is short, and a new test that
 * starts a cluster is long. A long file states why it may wait.
 */

/** Parts of `npm test -- PART`, the ones with the longest tests first. */
export const PARTS = [
  'e2e',
  'conformance',
  'worker',
  'postgresql',
  'agent',
  'gateway',
  'release',
  'netns',
  'slurm',
  'browser',
  'docs',
  'sim',
  'shared',
  'node',
  'scheduler',
  'factory',
  'research',
  'up',
  'chaos',
] as const;

/** Parts with files that are short by default. */
export const UNITS: ReadonlySet<string> = new Set([
  'shared',
  'node',
  'sim',
  'scheduler',
  'factory',
  'agent',
  'gateway',
  'conformance',
  'docs',
  'up',
]);

const rooms = (part: string, files: Readonly<Record<string, string>>) =>
  Object.fromEntries(Object.entries(files).map(([name, why]) => [`test/${part}/${name}.test.ts`, why]));

/** Files of UNITS that only the long form runs, and their replacement in the short form. */
export const LONG: Readonly<Record<string, string>> = {
  ...rooms('shared', {
    'lattice/mutants': 'thirty builds of a broken lattice: lattice/laws holds the laws that they break',
  }),
  ...rooms('gateway', {
    'evicted/evicted':
      'ten stories, each as often as it has steps; registry, accounts and batch evict their objects, too',
    'registry/gossip': 'waits half a minute for quiet; shared/gossip proves the steps in virtual time',
  }),
  ...rooms('agent', {
    'weights/faults': 'pulls by four agents, some of which are killed; weights/pull, hung and sources have the rules',
    'weights/environment': 'packs and unpacks environments of Python',
    'batch/packed-functions': 'a Python process for each kind of function; batch/python-client has its rules',
    'batch/python-client-faults': 'a Python process for each fault of a gateway; batch/python-client has the client',
    'weights/packages-source':
      'nodes that wait for a slow installation; weights/pull has how they copy from each other',
    'batch/function-packages':
      'installs packages with a real pip and uv; batch/function-starter has what may be declared',
    'mesh/circuit': 'a minute of circuits through relays; e2e/circuit-object has the object that joins them',
  }),
  ...rooms('scheduler', {
    'follow/follower': 'follows simulated days; follow/decide has each decision',
  }),
  ...rooms('conformance', {
    'batch/batch-faults':
      'a gateway for each of twelve faults; batch/batches and shared/batch/lease-ledger have each line once',
    'batch/batch-engine-faults': 'engines that break in the middle of lines; batch/batch-edge-cases has the answers',
    'batch/functions': 'functions in processes; agent/batch/functions have the rules',
    'batch/python-function': 'functions in Python',
    'batch/python-examples': 'three scripts, before and after they were moved; python-function has their rules',
    'cold-models': 'waits for models that start; gateway/queue and gateway/factory have the rules',
    waiting: 'engines that are silent for 20 s',
    peers: 'gateways beside each other by the minute',
    'http/floods': 'floods by the minute',
    'access/key-timing': 'statistics of times',
    'sdk/sdk-retries': 'waits as the SDKs wait',
    'sealed/sealed-python': 'the Python client; sealed-sdk has the other one',
    'gateway-cli': 'eighty processes of the command line',
  }),
  ...rooms('factory', {
    'launchers/kubernetes-cluster': 'an API server; launchers/kubernetes has the requests and answers',
  }),
  ...rooms('docs', {
    'helm-chart-cluster': 'an API server; helm-chart has the rendered objects',
  }),
  ...rooms('up', {
    'kubernetes-cluster': 'an API server, and several starts of a gateway and an agent',
    share: 'a gateway, an agent and three commands',
    'share-gateway': 'two gateways and two agents',
    'share-nodes': 'two gateways and two agents',
    machine: 'several starts of a gateway, an agent and an engine',
  }),
};

/** Files of the other parts that the short form has, and what they prove. */
export const SHORT: Readonly<Record<string, string>> = {
  ...rooms('e2e', {
    'standalone/serve': 'a gateway starts, serves, refuses what it cannot do, and ends',
    'standalone/backup': 'what was stored is there after a copy is put back',
    'standalone/installer': 'the line that the pages tell providers to run, in dash',
    'standalone/site-profile': 'the profile of a cluster reaches the job script, and no command of it',
    'standalone/doctor': 'a broken data directory is told',
    'standalone/copy-of': 'units of the Node host: each starts nothing, or one part of it',
    'standalone/client-websockets': '',
    'standalone/layout': '',
    'standalone/restored-counters': '',
    'standalone/local-calls': '',
    'standalone/node-connections': '',
    'standalone/node-drain': '',
    'standalone/node-objects': '',
    'standalone/node-plain': '',
    'standalone/node-upgrades': '',
    'standalone/node-write-answer': '',
    'standalone/processes-for-session': '',
    'standalone/process-links': 'an end without the cluster key gets nothing, a broken peer harms its link alone',
    'standalone/stream-of-reset-object': '',
    'postgresql/accounts': 'each query of accounts that two databases write differently',
    'postgresql/membership': 'which of several processes own the objects, also if disks are full',
    'files/batch-bounds': '',
    'files/batch-clock': 'batches over days in virtual time, a crash at any moment: each line is answered once',
    'files/batch-failures': 'stores and objects fail: the batch continues afterwards',
    'files/directory-files': '',
    'files/file-quota': '',
    'tunnel-memory': '',
    'circuit-object': '',
    'agent-faults': 'calls of an agent fail in every place: its engine lives, every request ends',
    'agent-killed': 'a killed agent is noticed, and its requests end or go on',
    continued: 'a stream goes on at another node without a lost or doubled token',
    failure: 'gateways, agents and engines fail under requests',
    ingress: 'the endpoint on an agent',
    observe: 'metrics, logs and stories of real requests',
    sealed: 'sealed requests through the whole path',
    'sealed-eavesdropper': 'nothing readable on the wire',
    'tunnel-admission': 'who may open a tunnel',
    'tunnel-failures': 'a tunnel that breaks, and comes back',
    'tunnel-hostile-agent': 'an agent that breaks the protocol harms itself alone',
    'tunnel-resume': 'an answer goes on over a new socket',
    'without-gateway': 'the ingress serves with all gateways dead',
  }),
  ...rooms('slurm', {
    jobs: 'a real Slurm: tokens from a job, a drain by signal, a job that is preempted and comes back',
  }),
  ...rooms('browser', {
    login: 'logging in and out',
    keys: 'keys are made and taken back',
    'form-changes': 'a form writes what a person changed',
    'conversation-tabs': 'two tabs of one conversation keep what each did',
    'axis-times': '',
    'shell-words': '',
    chat: 'a chat streams, stops, is edited and compared',
    'chat-conversations': 'a conversation is found again, and in two tabs',
    tasks: 'what people come for, from beginning to end',
  }),
};

/** Files that .ci/run leaves out, and why. `npm run test:all` runs them. */
export const NOT_IN_CI: Readonly<Record<string, string>> = rooms('slurm', {
  'laptop-keep': 'ten minutes: jobs of four minutes follow each other',
  'laptop-namespaces': 'the laptop is asleep for two minutes',
});

/** Files of test/conformance that the short form also runs in Cloudflare's runtime. */
export const SHORT_WORKER: readonly string[] = ['http/answers', 'sdk/openai-sdk', 'registry'];

/** Files of test/conformance that the short form also runs with the accounts in PostgreSQL. */
export const SHORT_POSTGRES: readonly string[] = ['people'];

/** True if the short form runs `file`, a path from the root, in `part`. */
export function isShort(part: string, file: string): boolean {
  if (part === 'worker') return SHORT_WORKER.some((name) => file === `test/conformance/${name}.test.ts`);
  if (part === 'postgresql') return SHORT_POSTGRES.some((name) => file === `test/conformance/${name}.test.ts`);
  return UNITS.has(part) ? !(file in LONG) : file in SHORT;
}

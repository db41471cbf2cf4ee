/** The namespace of a Kubernetes cluster in which a run has its pod, as kubectl reaches it. */
import * as z from 'zod';
import type { RunCommand } from '../../../node/command-runner.ts';
import { UsageError } from '../../../shared/command-line/index.ts';
import { tryParseJson } from '../../../shared/text/parse-json.ts';
import { UpError } from '../../up-error.ts';

export interface KubernetesPlace {
  /** Name of the context in the user's kubeconfig. */
  context: string;
  namespace: string;
}

/** Contexts have names such as `arn:aws:eks:…:cluster/x` and `me@cluster`. A dash at the begin would be an option. */
const CONTEXT = /^[\w@][\w@.:/+-]{0,254}$/;
const NAMESPACE = /^[a-z0-9][a-z0-9-]{0,62}$/;
/** Begins the host of a run in a cluster. The space distinguishes it from hosts of ssh. */
const PREFIX = 'kubernetes ';

/** The host of a run. It names the context, because the user's current one may change. */
export const kubernetesHost = ({ context, namespace }: KubernetesPlace): string => `${PREFIX}${context} ${namespace}`;

/** Undefined for a host that is not a place in Kubernetes. */
export function kubernetesPlace(host: string): KubernetesPlace | undefined {
  if (!host.startsWith(PREFIX)) return undefined;
  const [context = '', namespace = ''] = host.slice(PREFIX.length).split(' ');
  return { context, namespace };
}

const configSchema = z.object({
  'current-context': z.string().default(''),
  contexts: z.array(z.object({ name: z.string(), context: z.object({ namespace: z.string().optional() }) })).nullish(),
});

/**
 * Finds the context and the namespace that kubectl would use.
 * @throws UsageError, UpError if there is no kubectl or no such context
 */
export async function findPlace(
  run: RunCommand,
  wish: { context: string | undefined; namespace: string | undefined },
): Promise<KubernetesPlace> {
  const asked = await run('kubectl', ['config', 'view', '-o', 'json']);
  if (asked.kind === 'missing')
    throw new UpError(
      `There is no kubectl on this machine: ${asked.errors}`,
      'Install kubectl, then run otela up again.',
    );
  const read = configSchema.safeParse(asked.kind === 'done' ? tryParseJson(asked.out) : undefined);
  const context = wish.context ?? read.data?.['current-context'] ?? '';
  const found = read.data?.contexts?.find(({ name }) => name === context);
  if (found === undefined)
    throw new UpError(
      context === '' ? 'kubectl has no current context.' : `kubectl has no context ${context}.`,
      'kubectl config get-contexts lists them. Give one with --context.',
    );
  const namespace = wish.namespace ?? found.context.namespace ?? 'default';
  if (!CONTEXT.test(context)) throw new UsageError(`--context: "${context}" is not a name that otela can use`);
  if (!NAMESPACE.test(namespace)) throw new UsageError(`--namespace: "${namespace}" is not the name of a namespace`);
  return { context, namespace };
}

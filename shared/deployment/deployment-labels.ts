/**
 * Prefix of a session's deployment labels in the registry. Only the agent sets such labels: its operator cannot set
 * them with --label.
 */
export const RESERVED_PREFIX = 'otela.';
/** Names of the templates that the agent would start now, separated by commas. Absent if it would start none. */
export const ACCEPTS_LABEL = 'otela.accepts';
/** Id of the deployment that this session runs. */
export const DEPLOYMENT_LABEL = 'otela.deployment';
/** `ID reason` of the previous deployment, if it failed. */
const FAILED_LABEL = 'otela.deployment-failed';
/** Maximum number of labels that an agent adds to those of its operator. */
export const OWN_LABELS_MAX = 2;

/** Maximum length of a label's value; see shared/lattice/node-record.ts. */
const VALUE_MAX = 255;

export type DeploymentProgress =
  | { kind: 'idle'; templates: readonly string[]; failed?: { id: string; reason: string } | undefined }
  | { kind: 'deployed'; id: string }
  /** The previous deployment has not ended completely. */
  | { kind: 'ending'; failed?: { id: string; reason: string } | undefined };

export function deploymentLabels(news: DeploymentProgress): Record<string, string> {
  if (news.kind === 'deployed') return { [DEPLOYMENT_LABEL]: news.id };
  const { failed } = news;
  return {
    ...(news.kind === 'idle' ? { [ACCEPTS_LABEL]: cut(news.templates.join(',')) } : {}),
    ...(failed === undefined ? {} : { [FAILED_LABEL]: cut(`${failed.id} ${failed.reason}`) }),
  };
}

export function failedDeployment(labels: Readonly<Record<string, string>>): { id: string; reason: string } | undefined {
  const [, id, reason] = /^(\S+) (.*)$/s.exec(labels[FAILED_LABEL] ?? '') ?? [];
  return id === undefined || reason === undefined ? undefined : { id, reason };
}

/**
 * Shortens a text, and replaces characters outside ASCII: the registry counts UTF-16 units, and an engine's output may
 * contain anything.
 */
function cut(text: string): string {
  return text.replace(/[^\x20-\x7e]+/g, ' ').slice(0, VALUE_MAX);
}

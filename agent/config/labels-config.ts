/** Labels of the node, shown in the registry. */
import { UsageError } from '../../shared/command-line/index.ts';
import { OWN_LABELS_MAX, RESERVED_PREFIX } from '../../shared/deployment/labels.ts';

const LABELS_MAX = 32;
/** Labels share the registry's 4 KiB with the list of models. */
const LABELS_MAX_BYTES = 1024;

/** `deploys`: deployments add further labels. @throws UsageError */
export function labelsConfig(texts: readonly string[], deploys: boolean): Record<string, string> {
  const max = deploys ? LABELS_MAX - OWN_LABELS_MAX : LABELS_MAX;
  const read: Record<string, string> = Object.create(null);
  for (const text of texts) {
    const at = text.indexOf('=');
    const [key, value] = [text.slice(0, at), text.slice(at + 1)];
    if (key.startsWith(RESERVED_PREFIX))
      throw new UsageError(`--label: labels that begin with ${RESERVED_PREFIX} are the agent's own`);
    if (at < 1 || !/^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/.test(key)) {
      throw new UsageError(`--label: "${text}" is not KEY=VALUE (letters, digits, . _ / - in the key, at most 63)`);
    }
    if (value.length > 255) throw new UsageError(`--label ${key}: longer than 255 characters`);
    read[key] = value;
  }
  if (Object.keys(read).length > max) throw new UsageError(`at most ${max} labels`);
  if (Buffer.byteLength(JSON.stringify(read)) > LABELS_MAX_BYTES)
    throw new UsageError('the labels are longer than 1 KiB together');
  return { ...read };
}

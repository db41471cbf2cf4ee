/** The node's place in the network, and the facts about it that the operator publishes in the registry. */
import { detectBatchJob } from '../../node/batch-systems/detect.ts';
import { UsageError } from '../../shared/command-line/index.ts';
import { OWN_LABELS_MAX, RESERVED_PREFIX } from '../../shared/deployment/deployment-labels.ts';
import { ID_PATTERN } from '../../shared/lattice/node-record.ts';
import { type ModelFact, parseFact } from '../engine/declared-model-facts.ts';
import { listSetting, valueSetting } from './setting.ts';
import { toUsageError } from './to-usage-error.ts';

const LABELS_MAX = 32;
/** Maximum bytes of all labels. They share the registry record's 4 KiB with the list of models. */
const LABELS_MAX_BYTES = 1024;

export const NODE_SETTINGS = {
  cluster: valueSetting({
    flag: 'cluster',
    env: 'OTELA_CLUSTER',
    value: 'NAME',
    help: 'name of this cluster',
    otherwise: 'from the token',
    parse: (text) => parseId('cluster', text),
  }),
  region: valueSetting({
    flag: 'region',
    env: 'OTELA_REGION',
    value: 'NAME',
    help: 'region of this machine, for example eu-central',
    parse: (text) => parseId('region', text),
  }),
  tier: valueSetting({
    flag: 'tier',
    env: 'OTELA_TIER',
    value: 'stable|volatile',
    help: 'whether the node stays (stable) or may end at any time (volatile)',
    otherwise: 'volatile in a batch job, otherwise stable',
    parse: parseTier,
    unset: ({ env }) => (detectBatchJob(env) === undefined ? 'stable' : 'volatile'),
  }),
  facts: listSetting({
    flag: 'fact',
    env: 'OTELA_FACT',
    value: '[MODEL:]KEY=VALUE',
    help: 'a fact that the engine does not report: context, quantization, engine, revision, input and output (text, image, audio, video, embedding, separated by commas)',
    parse: (texts): ModelFact[] => texts.map((text) => toUsageError(() => parseFact(text))),
  }),
  labels: listSetting({
    flag: 'label',
    env: 'OTELA_LABEL',
    value: 'KEY=VALUE',
    help: 'a label to show in the registry; repeat',
    parse: parseLabels,
  }),
};

function parseId(name: string, text: string): string {
  if (ID_PATTERN.test(text)) return text;
  throw new UsageError(`${name}: "${text}" must be lower-case letters, digits and dashes, at most 63`);
}

function parseTier(text: string): 'stable' | 'volatile' {
  if (text === 'stable' || text === 'volatile') return text;
  throw new UsageError(`tier: "${text}" is neither stable nor volatile`);
}

function parseLabels(texts: readonly string[]): Record<string, string> {
  const read: Record<string, string> = Object.create(null);
  for (const text of texts) {
    const at = text.indexOf('=');
    const [key, value] = [text.slice(0, at), text.slice(at + 1)];
    if (key.startsWith(RESERVED_PREFIX))
      throw new UsageError(`--label: the prefix ${RESERVED_PREFIX} is reserved for the agent`);
    if (at < 1 || !/^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/.test(key)) {
      throw new UsageError(`--label: "${text}" is not KEY=VALUE (letters, digits, . _ / - in the key, at most 63)`);
    }
    if (value.length > 255) throw new UsageError(`--label ${key}: longer than 255 characters`);
    read[key] = value;
  }
  checkLabelCount(read, LABELS_MAX);
  if (Buffer.byteLength(JSON.stringify(read)) > LABELS_MAX_BYTES)
    throw new UsageError('--label: the labels together are longer than 1 KiB');
  return { ...read };
}

/** Checks that the labels leave room for the labels that deployments add. @throws UsageError */
export function checkLabelsOfDeployments(labels: Readonly<Record<string, string>>): void {
  checkLabelCount(labels, LABELS_MAX - OWN_LABELS_MAX);
}

function checkLabelCount(labels: Readonly<Record<string, string>>, max: number): void {
  if (Object.keys(labels).length > max) throw new UsageError(`--label: at most ${max} labels are allowed`);
}

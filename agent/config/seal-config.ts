/** The key that vouches for this node's encryption keys, and evidence about its machine. */
import { accessSync, constants } from 'node:fs';
import { UsageError } from '../../shared/command-line/index.ts';
import { EVIDENCE_KIND, EVIDENCE_KINDS_MAX } from '../../shared/seal/attestation-evidence.ts';
import { DelegateKey } from '../seal/delegate-key.ts';
import { EvidenceHelper } from '../seal/evidence-helper.ts';
import { plainText, type SettingReader, valueSetting } from './setting.ts';
import { toUsageError } from './to-usage-error.ts';

export const SEAL_SETTINGS = {
  delegate: valueSetting({
    flag: 'delegate-file',
    env: 'OTELA_DELEGATE_FILE',
    value: 'FILE',
    help: 'delegate key from otela-agent vouch (chmod 600); clients that pin the provider can then encrypt requests to this node',
    parse: (path) => toUsageError(() => DelegateKey.read(path)),
  }),
  evidenceCommand: valueSetting({
    flag: 'evidence-command',
    env: 'OTELA_EVIDENCE_COMMAND',
    value: 'FILE',
    help: 'your program that prints evidence about a confidential VM, for clients that verify it (docs/sealed.md)',
    parse: plainText,
  }),
  evidenceKinds: valueSetting({
    flag: 'evidence-kinds',
    env: 'OTELA_EVIDENCE_KINDS',
    value: 'KINDS',
    help: 'kinds of evidence that --evidence-command prints, separated by commas: tdx, snp, nvidia',
    parse: parseKinds,
  }),
};

export interface SealConfig {
  /** Key that vouches for this node's encryption keys; undefined: nothing vouches for them. */
  delegate: DelegateKey | undefined;
  evidence: EvidenceHelper | undefined;
}

/** @throws UsageError */
export function sealConfig(reader: SettingReader): SealConfig {
  const { evidenceCommand: program, evidenceKinds: listed } = SEAL_SETTINGS;
  if (reader.has(program) !== reader.has(listed))
    throw new UsageError('--evidence-command and --evidence-kinds must be given together');
  const { delegate, evidenceCommand: file, evidenceKinds: kinds } = reader.read(SEAL_SETTINGS);
  if (kinds === undefined || file === undefined) return { delegate, evidence: undefined };
  toUsageError(() => accessSync(file, constants.X_OK));
  return { delegate, evidence: new EvidenceHelper(file, kinds) };
}

function parseKinds(text: string): string[] {
  const kinds = text.split(',').map((kind) => kind.trim());
  if (kinds.length <= EVIDENCE_KINDS_MAX && kinds.every((kind) => EVIDENCE_KIND.test(kind))) return kinds;
  throw new UsageError(`--evidence-kinds must be 1 to ${EVIDENCE_KINDS_MAX} words such as tdx,nvidia`);
}

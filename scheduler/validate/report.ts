import { dataPath, type HardwareCatalogue, readCalibration } from '../catalogue/catalogue.ts';
import { withDatasheetMemory } from '../catalogue/datasheet-memory.ts';
import type { ReportSection } from './accuracy-checks.ts';
import { sweepSection } from './concurrency-sweeps.ts';
import { consumerRatioSection } from './consumer-gpu-section.ts';
import { allReduceSection, attentionSection, gemmSection } from './kernel-sections.ts';
import { drainSection, llamaSection } from './measured-workloads.ts';
import { helixSection, relativeSection } from './other-gpu-sections.ts';
import { pipelineSection } from './pipeline-section.ts';
import { publishedSection } from './published-section.ts';
import { percent, table } from './text-table.ts';

interface Validation {
  sections: ReportSection[];
  missed: number;
}

/**
 * Compares the simulator with all measurements in the repository. For published results of current engines, it uses the
 * catalogue's calibration. For older measurements, it uses the calibration that was fitted to them, and the memory that
 * OpenTela's paper states.
 */
export function validate(catalogue: HardwareCatalogue): Validation {
  const calibration = readCalibration(dataPath('calibration-opentela.json'));
  const older = { ...withDatasheetMemory(catalogue), calibration };
  const earlier = [
    gemmSection,
    relativeSection,
    allReduceSection,
    attentionSection,
    llamaSection,
    drainSection,
    consumerRatioSection,
    helixSection,
  ].map((make) => make(older));
  const sections = [publishedSection(catalogue), pipelineSection(catalogue), sweepSection(catalogue), ...earlier];
  const missed = sections
    .flatMap(({ checks }) => checks)
    .filter(({ limit, found }) => limit !== undefined && !(found <= limit)).length;
  return { sections, missed };
}

export function validationText({ sections, missed }: Validation): string {
  const parts = sections.map((section) => `${section.title}\n\n${table(section.header, section.rows)}\n`);
  const rows = sections.flatMap(({ checks }) =>
    checks.map(({ name, limit, found, note }) => [
      limit === undefined ? '' : found <= limit ? 'met' : 'MISSED',
      name,
      found > 1000 ? found.toLocaleString('en', { maximumFractionDigits: 0 }) : percent(found),
      limit === undefined ? '' : `≤ ${percent(limit, 0)}`,
      note,
    ]),
  );
  const total = sections.flatMap(({ checks }) => checks).filter(({ limit }) => limit !== undefined).length;
  return `${parts.join('\n')}\nAccuracy\n\n${table(['', 'figure', 'found', 'required', 'how'], rows)}\n\n${total - missed} of ${total} met, ${missed} missed`;
}

import { type Batch, contentPath, isOver } from '../../api/batches.ts';
import { t } from '../../texts/index.ts';
import { buttonClass } from '../../ui/button.tsx';
import { Download } from '../../ui/icons.ts';
import { Section } from '../../ui/page.tsx';
import { batchName } from './batch-state.tsx';

const texts = t.batches.one;

/** The batch's input and its results. */
export function BatchFiles({ batch }: { batch: Batch }) {
  return (
    <Section title={texts.downloads}>
      {batch.x_otela.owner === undefined ? <Downloads batch={batch} /> : <p className="text-muted">{texts.notYours}</p>}
    </Section>
  );
}

function Downloads({ batch }: { batch: Batch }) {
  const { output_file_id: output, error_file_id: errors } = batch;
  return (
    <div className="flex flex-wrap items-center gap-2">
      {output != null && <File id={output} label={texts.output} of={batch} />}
      {errors != null && <File id={errors} label={texts.errors} of={batch} />}
      <File id={batch.input_file_id} label={texts.input} of={batch} />
      {output == null && batch.status !== 'failed' && (
        <p className="text-muted">{isOver(batch) ? texts.noOutput : texts.noFiles}</p>
      )}
    </div>
  );
}

function File({ id, label, of }: { id: string; label: string; of: Batch }) {
  return (
    <a href={contentPath(id)} download={`${batchName(of)} ${label}.jsonl`} className={buttonClass()}>
      <Download className="size-4" aria-hidden />
      {label}
    </a>
  );
}

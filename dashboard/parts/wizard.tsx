import { type ChangeEvent, useState } from 'react';
import { defaultImage, type JobRequest, jobScript } from '../../shared/slurm/job-script.ts';
import { t } from '../texts/index.ts';
import { Copy } from '../ui/copy.tsx';
import { Field, Input, Select } from '../ui/field.tsx';
import { Card, Code } from '../ui/page.tsx';

/** An sbatch script for a cluster, a model and an engine, as it is typed. */
export function Wizard({ gateway }: { gateway: string }) {
  const [job, setJob] = useState<JobRequest>({
    gateway,
    model: 'Qwen/Qwen3-8B',
    engine: 'vllm',
    gpus: 1,
    partition: '',
    time: '04:00:00',
    container: 'none',
    image: '',
  });
  const set = (name: keyof JobRequest) => (event: ChangeEvent<HTMLInputElement | HTMLSelectElement>) => {
    const { value } = event.currentTarget;
    setJob({ ...job, [name]: name === 'gpus' ? Math.max(1, Math.floor(Number(value)) || 1) : value });
  };
  const script = jobScript(job);
  const { fields } = t.wizard;
  return (
    <Card className="wizard flex flex-col gap-4">
      <form className="grid gap-4 sm:grid-cols-2 lg:grid-cols-3" onSubmit={(event) => event.preventDefault()}>
        <Field label={fields.model}>{(id) => <Input id={id} value={job.model} onChange={set('model')} />}</Field>
        <Field label={fields.engine}>
          {(id) => (
            <Select id={id} value={job.engine} onChange={set('engine')}>
              <option value="vllm">vLLM</option>
              <option value="sglang">SGLang</option>
            </Select>
          )}
        </Field>
        <Field label={fields.gpus}>
          {(id) => <Input id={id} type="number" min="1" value={job.gpus} onChange={set('gpus')} />}
        </Field>
        <Field label={fields.partition}>
          {(id) => <Input id={id} value={job.partition} onChange={set('partition')} />}
        </Field>
        <Field label={fields.time}>{(id) => <Input id={id} value={job.time} onChange={set('time')} />}</Field>
        <Field label={fields.container}>
          {(id) => (
            <Select id={id} value={job.container} onChange={set('container')}>
              <option value="none">{fields.noContainer}</option>
              <option value="apptainer">Apptainer</option>
              <option value="enroot">Enroot</option>
            </Select>
          )}
        </Field>
        {job.container !== 'none' && (
          <Field label={fields.image}>
            {(id) => <Input id={id} value={job.image} onChange={set('image')} placeholder={defaultImage(job)} />}
          </Field>
        )}
      </form>
      <Code label={t.wizard.title}>{script}</Code>
      <p className="flex items-center gap-4 text-muted text-sm">
        <Copy text={script} />
        <span>
          {t.wizard.tokenFile[0]}
          <code>~/.otela-token</code>
          {t.wizard.tokenFile[1]}
          <code>sbatch</code>
          {t.wizard.tokenFile[2]}
        </span>
      </p>
    </Card>
  );
}

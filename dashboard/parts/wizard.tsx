import { useState } from 'preact/hooks';
import { defaultImage, type JobRequest, jobScript } from '../../shared/slurm/job-script.ts';
import { Copy, Field } from './ui.tsx';

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
  const set = (name: keyof JobRequest) => (event: { currentTarget: HTMLInputElement | HTMLSelectElement }) =>
    setJob({
      ...job,
      [name]:
        name === 'gpus' ? Math.max(1, Math.floor(Number(event.currentTarget.value)) || 1) : event.currentTarget.value,
    });
  const script = jobScript(job);
  return (
    <div class="wizard">
      <form class="row" onSubmit={(event) => event.preventDefault()}>
        <Field label="Model">{(id) => <input id={id} value={job.model} onInput={set('model')} />}</Field>
        <Field label="Engine">
          {(id) => (
            <select id={id} value={job.engine} onChange={set('engine')}>
              <option value="vllm">vLLM</option>
              <option value="sglang">SGLang</option>
            </select>
          )}
        </Field>
        <Field label="GPUs">
          {(id) => <input id={id} type="number" min="1" value={job.gpus} onInput={set('gpus')} />}
        </Field>
        <Field label="Partition">{(id) => <input id={id} value={job.partition} onInput={set('partition')} />}</Field>
        <Field label="Time">{(id) => <input id={id} value={job.time} onInput={set('time')} />}</Field>
        <Field label="Container">
          {(id) => (
            <select id={id} value={job.container} onChange={set('container')}>
              <option value="none">none</option>
              <option value="apptainer">Apptainer</option>
              <option value="enroot">Enroot</option>
            </select>
          )}
        </Field>
        {job.container !== 'none' && (
          <Field label="Image">
            {(id) => <input id={id} value={job.image} onInput={set('image')} placeholder={defaultImage(job)} />}
          </Field>
        )}
      </form>
      <pre tabIndex={0}>{script}</pre>
      <p class="row">
        <Copy text={script} />
      </p>
      <p class="quiet">
        Put the join token into <code>~/.otela-token</code>, readable by you alone, then <code>sbatch</code> it.
      </p>
    </div>
  );
}

import { type ChangeEvent, useState } from 'react';
import {
  defaultImage,
  ENGINE_ARGUMENTS_MAX,
  JOB_CONTAINERS,
  type JobRequest,
  jobScript,
  SBATCH_OPTIONS_MAX,
} from '../../shared/slurm/job-script.ts';
import { t } from '../texts/index.ts';
import { Copy } from '../ui/copy.tsx';
import { Field, Input, Select, Textarea } from '../ui/field.tsx';
import { MoreFields, WIDE } from '../ui/form.tsx';
import { Card, Code } from '../ui/page.tsx';
import { wordsOf } from './shell-words.ts';

/** The fields of the form that are one line of text in the script. */
type TextName = 'model' | 'partition' | 'time' | 'image' | 'account' | 'qos' | 'constraint' | 'memory';
type Change = ChangeEvent<HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement>;

const SLURM_NAMES = ['partition', 'account', 'qos', 'constraint', 'time', 'memory'] as const;

/** A job script for a cluster, a model and an engine. It changes as the user types. */
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
  const [passed, setPassed] = useState({ sbatch: '', engine: '' });
  const [sbatch, engine] = [wordsOf(passed.sbatch), wordsOf(passed.engine)];
  const script = jobScript({
    ...job,
    sbatchOptions: (sbatch ?? []).slice(0, SBATCH_OPTIONS_MAX),
    engineArguments: (engine ?? []).slice(0, ENGINE_ARGUMENTS_MAX),
  });
  const { fields, hints } = t.wizard;
  const text = (name: TextName, hint?: string) => (
    <Field key={name} label={fields[name]} {...(hint !== undefined && { hint })}>
      {(id) => (
        <Input
          id={id}
          value={job[name] ?? ''}
          onChange={(event: Change) => setJob({ ...job, [name]: event.currentTarget.value })}
          placeholder={name === 'image' ? defaultImage(job) : undefined}
          spellCheck={false}
        />
      )}
    </Field>
  );
  return (
    <Card className="wizard grid gap-6 xl:grid-cols-2">
      <form className="grid content-start gap-4 sm:grid-cols-2" onSubmit={(event) => event.preventDefault()}>
        {text('model')}
        <Field label={fields.engine}>
          {(id) => (
            <Select
              id={id}
              value={job.engine}
              onChange={({ currentTarget: { value } }) =>
                setJob({ ...job, engine: value === 'sglang' ? value : 'vllm' })
              }
            >
              <option value="vllm">vLLM</option>
              <option value="sglang">SGLang</option>
            </Select>
          )}
        </Field>
        <Field label={fields.gpus} hint={hints.gpus}>
          {(id) => (
            <Input
              id={id}
              type="number"
              min="1"
              value={job.gpus}
              onChange={({ currentTarget: { value } }) => setJob({ ...job, gpus: wholeNumber(value) ?? 1 })}
            />
          )}
        </Field>
        <Field label={fields.cpus} hint={hints.clusterDefault}>
          {(id) => (
            <Input
              id={id}
              type="number"
              min="1"
              value={job.cpusPerTask ?? ''}
              onChange={({ currentTarget: { value } }) => {
                const { cpusPerTask: _, ...rest } = job;
                const cpus = wholeNumber(value);
                setJob(cpus === undefined ? rest : { ...rest, cpusPerTask: cpus });
              }}
            />
          )}
        </Field>
        {SLURM_NAMES.map((name) => text(name, hints[name]))}
        <Field label={fields.container} hint={hints.container}>
          {(id) => (
            <Select
              id={id}
              value={job.container}
              onChange={({ currentTarget: { value } }) =>
                setJob({ ...job, container: JOB_CONTAINERS.find((one) => one === value) ?? 'none' })
              }
            >
              <option value="none">{fields.noContainer}</option>
              <option value="apptainer">Apptainer</option>
              <option value="enroot">Enroot</option>
              <option value="edf">CSCS Container Engine (EDF)</option>
            </Select>
          )}
        </Field>
        {job.container !== 'none' && text('image', hints.image)}
        <MoreFields title={t.wizard.more}>
          <Field
            label={fields.sbatch}
            hint={hints.sbatch}
            error={sbatch === undefined ? t.wizard.openQuote : undefined}
            className={WIDE}
          >
            {(id) => (
              <Textarea
                id={id}
                rows={2}
                value={passed.sbatch}
                placeholder="reservation=maint exclusive"
                onChange={(event: Change) => setPassed({ ...passed, sbatch: event.currentTarget.value })}
              />
            )}
          </Field>
          <Field
            label={fields.engineArguments}
            hint={hints.engineArguments}
            error={engine === undefined ? t.wizard.openQuote : undefined}
            className={WIDE}
          >
            {(id) => (
              <Textarea
                id={id}
                rows={2}
                value={passed.engine}
                placeholder="--max-model-len 32768"
                onChange={(event: Change) => setPassed({ ...passed, engine: event.currentTarget.value })}
              />
            )}
          </Field>
        </MoreFields>
      </form>
      <div className="flex min-w-0 flex-col gap-4">
        <Code label={t.wizard.title}>{script}</Code>
        <div className="flex flex-wrap items-center gap-4 text-muted text-sm">
          <Copy text={script} />
          <p className="min-w-0 flex-1">
            {t.wizard.tokenFile[0]}
            <code>~/.otela-token</code>
            {t.wizard.tokenFile[1]}
            <code>sbatch</code>
            {t.wizard.tokenFile[2]}
          </p>
        </div>
      </div>
    </Card>
  );
}

function wholeNumber(text: string): number | undefined {
  const number = Math.floor(Number(text));
  return number >= 1 ? number : undefined;
}

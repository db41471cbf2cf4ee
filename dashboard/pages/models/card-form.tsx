import type { FormEvent } from 'react';
import { gateway } from '../../api/client.ts';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Failure } from '../../ui/feedback.tsx';
import { Field, Input, Select, Textarea } from '../../ui/field.tsx';
import { useAction } from '../../ui/use-action.ts';
import type { ModelCard } from './cards.ts';

const texts = t.models;

interface CardFormProps {
  model: string;
  card: ModelCard | undefined;
  saved: () => void;
  close: () => void;
}

const MODALITIES = ['text', 'image', 'audio', 'video', 'embedding'] as const;

/** What an operator says of a model. */
export default function CardForm({ model, card, saved, close }: CardFormProps) {
  const { form: words } = texts;
  const { error, busy, act } = useAction<void>(() => {
    saved();
    close();
  });
  const at = { params: { path: { id: model } } };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const body = bodyOf(new FormData(event.currentTarget));
    act(gateway.PUT('/admin/model-cards/{id}', { ...at, body }).then(() => undefined));
  };
  const remove = () => act(gateway.DELETE('/admin/model-cards/{id}', at).then(() => undefined));
  return (
    <Dialog title={words.title(model)} close={close}>
      <form onSubmit={submit} className="grid gap-4 sm:grid-cols-2">
        <p className="text-muted text-sm sm:col-span-2">{words.about}</p>
        <Field label={words.description} hint={words.descriptionHint} className="sm:col-span-2">
          {(id) => (
            <Textarea id={id} name="description" rows={4} maxLength={4000} defaultValue={card?.description ?? ''} />
          )}
        </Field>
        <Field label={texts.size} hint={words.sizeHint}>
          {(id) => <Input id={id} name="size" maxLength={120} defaultValue={card?.size ?? ''} />}
        </Field>
        <Field label={texts.license}>
          {(id) => <Input id={id} name="license" maxLength={120} defaultValue={card?.license ?? ''} />}
        </Field>
        <Field label={texts.context} hint={words.contextHint}>
          {(id) => <Input id={id} name="context" type="number" min="1" defaultValue={card?.context_length ?? ''} />}
        </Field>
        <Field label={words.url} hint={words.urlHint}>
          {(id) => <Input id={id} name="url" type="url" pattern="https://.*" defaultValue={card?.url ?? ''} />}
        </Field>
        <Choices name="input" label={texts.reads} chosen={card?.input ?? []} />
        <Choices name="output" label={texts.writes} chosen={card?.output ?? []} />
        <Answer name="tools" label={words.tools} value={card?.tools ?? null} />
        <Answer name="reasoning" label={words.reasoning} value={card?.reasoning ?? null} />
        {error !== undefined && (
          <div className="sm:col-span-2">
            <Failure error={error} />
          </div>
        )}
        <div className="flex flex-wrap justify-end gap-2 sm:col-span-2">
          {card !== undefined && (
            <Button kind="ghost" disabled={busy} onClick={remove}>
              {words.remove}
            </Button>
          )}
          <Button type="submit" kind="primary" disabled={busy}>
            {t.common.save}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function Choices({ name, label, chosen }: { name: string; label: string; chosen: readonly string[] }) {
  return (
    <fieldset className="flex flex-col gap-1">
      <legend className="mb-1 font-medium text-sm">{label}</legend>
      {MODALITIES.map((one) => (
        <label key={one} className="flex items-center gap-2 text-sm">
          <input type="checkbox" name={name} value={one} defaultChecked={chosen.includes(one)} />
          {texts.modalities[one]}
        </label>
      ))}
    </fieldset>
  );
}

function Answer({ name, label, value }: { name: string; label: string; value: boolean | null }) {
  const { form: words } = texts;
  return (
    <Field label={label}>
      {(id) => (
        <Select id={id} name={name} defaultValue={value === null ? '' : String(value)}>
          <option value="">{words.notTold}</option>
          <option value="true">{words.yes}</option>
          <option value="false">{words.no}</option>
        </Select>
      )}
    </Field>
  );
}

function bodyOf(form: FormData) {
  const text = (name: string) => String(form.get(name) ?? '').trim();
  const chosen = (name: string) => MODALITIES.filter((one) => form.getAll(name).includes(one));
  const answer = (name: string) => (text(name) === '' ? null : text(name) === 'true');
  return {
    description: text('description'),
    size: text('size'),
    license: text('license'),
    context_length: text('context') === '' ? null : Number(text('context')),
    url: text('url') || null,
    input: chosen('input'),
    output: chosen('output'),
    tools: answer('tools'),
    reasoning: answer('reasoning'),
  };
}
